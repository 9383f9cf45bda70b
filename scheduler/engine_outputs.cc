#include "scheduler/engine_outputs.h"

namespace quire {

EngineOutputs::EngineOutputs(int32_t num_shards) : pending_(num_shards) {
  for (StepOutputs& pending : pending_) {
    rings_.push_back(std::make_unique<OutputRing>());
    pending_pointers_.push_back(&pending);
  }
}

void EngineOutputs::CollectFinished(std::vector<uint64_t>* handles) const {
  for (const StepOutputs& pending : pending_) {
    for (const SequenceOutput& event : pending.sequences) {
      if (event.request_finished) handles->push_back(event.handle);
    }
  }
}

bool EngineOutputs::Publish() {
  bool waited = false;
  for (size_t shard = 0; shard < rings_.size(); ++shard) {
    if (pending_[shard].sequences.empty() && pending_[shard].prompt_scores.empty()) continue;
    waited |= rings_[shard]->Write(&pending_[shard]);
  }
  return waited;
}

void EngineOutputs::Close() {
  for (auto& ring : rings_) ring->Close();
}

void EngineOutputs::StopWaiting() {
  for (auto& ring : rings_) ring->StopWaiting();
}

}  // namespace quire
