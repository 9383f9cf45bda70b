#include "scheduler/engine_outputs.h"

namespace quire {
namespace {

// Appends `event` to `events` and its log-probabilities to those of `slot`.
template <typename Event>
void Append(const StepOutputs& from, const Event& event, std::vector<Event>& events, StepOutputs& slot) {
  events.push_back(event);
  events.back().logprobs_begin = static_cast<int32_t>(slot.logprobs.size());
  const auto begin = from.logprobs.begin() + event.logprobs_begin;
  slot.logprobs.insert(slot.logprobs.end(), begin, begin + event.logprobs_count);
}

}  // namespace

EngineOutputs::EngineOutputs(int32_t num_shards) : open_(num_shards, nullptr) {
  for (int32_t i = 0; i < num_shards; ++i) rings_.push_back(std::make_unique<OutputRing>());
}

bool EngineOutputs::Publish(const StepOutputs& outputs) {
  bool waited = false;
  const auto slot_of = [&](uint64_t handle) -> StepOutputs& {
    const size_t shard = handle % rings_.size();
    if (open_[shard] == nullptr) open_[shard] = rings_[shard]->BeginWrite(&waited);
    return *open_[shard];
  };
  for (const PromptScoreOutput& score : outputs.prompt_scores) {
    StepOutputs& slot = slot_of(score.handle);
    Append(outputs, score, slot.prompt_scores, slot);
  }
  for (const SequenceOutput& event : outputs.sequences) {
    StepOutputs& slot = slot_of(event.handle);
    Append(outputs, event, slot.sequences, slot);
  }
  for (size_t shard = 0; shard < rings_.size(); ++shard) {
    if (open_[shard] == nullptr) continue;
    rings_[shard]->Publish();
    open_[shard] = nullptr;
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
