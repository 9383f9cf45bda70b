#include "scheduler/engine_outputs.h"

namespace quire {
namespace {

bool Empty(const StepOutputs& outputs) { return outputs.sequences.empty() && outputs.prompt_scores.empty(); }

// Appends `event` to `events`, which are a part of `to`, and its log-probabilities to those of `to`.
template <typename Event>
void Append(const StepOutputs& from, const Event& event, std::vector<Event>& events, StepOutputs& to) {
  events.push_back(event);
  events.back().logprobs_begin = static_cast<int32_t>(to.logprobs.size());
  const auto begin = from.logprobs.begin() + event.logprobs_begin;
  to.logprobs.insert(to.logprobs.end(), begin, begin + event.logprobs_count);
}

}  // namespace

EngineOutputs::EngineOutputs(int32_t num_shards) : dealt_(num_shards) {
  for (int32_t i = 0; i < num_shards; ++i) rings_.push_back(std::make_unique<OutputRing>());
}

void EngineOutputs::CollectFinished(std::vector<uint64_t>* handles) const {
  for (const SequenceOutput& event : gathered_.sequences) {
    if (event.request_finished) handles->push_back(event.handle);
  }
}

void EngineOutputs::Publish() {
  if (Empty(gathered_)) return;
  if (rings_.size() == 1) {
    rings_[0]->Write(&gathered_);
    return;
  }
  DealOut();
  for (size_t shard = 0; shard < rings_.size(); ++shard) {
    if (!Empty(dealt_[shard])) rings_[shard]->Write(&dealt_[shard]);
  }
}

void EngineOutputs::DealOut() {
  for (const PromptScoreOutput& score : gathered_.prompt_scores) {
    StepOutputs& to = dealt_[score.handle % dealt_.size()];
    Append(gathered_, score, to.prompt_scores, to);
  }
  for (const SequenceOutput& event : gathered_.sequences) {
    StepOutputs& to = dealt_[event.handle % dealt_.size()];
    Append(gathered_, event, to.sequences, to);
  }
  gathered_.prompt_scores.clear();
  gathered_.sequences.clear();
  gathered_.logprobs.clear();
}

void EngineOutputs::Close() {
  for (auto& ring : rings_) ring->Close();
}

void EngineOutputs::StopWaiting() {
  for (auto& ring : rings_) ring->StopWaiting();
}

int64_t EngineOutputs::num_waits() const {
  int64_t waits = 0;
  for (const auto& ring : rings_) waits += ring->num_waits();
  return waits;
}

}  // namespace quire
