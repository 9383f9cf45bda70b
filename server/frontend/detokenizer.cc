#include "server/frontend/detokenizer.h"

#include <utility>

#include "kernels/base/check.h"

namespace quire {

Detokenizer::Detokenizer(Engine& engine, int32_t shard, LiveRequests& live, OnEnd on_end)
    : engine_(engine), shard_(shard), live_(live), on_end_(std::move(on_end)) {}

void Detokenizer::Run() {
  StepOutputQueue& queue = engine_.outputs(shard_);
  while (const StepOutputs* outputs = queue.Pop()) {
    Process(*outputs);
    queue.Release();
  }
}

LiveRequest* Detokenizer::Find(uint64_t handle) {
  auto& known = known_[handle];
  if (known == nullptr) known = live_.Find(handle);
  // A request is registered before the engine hears of it and stays until the engine's last word.
  QUIRE_CHECK(known != nullptr);
  if (!known->touched) touched_.push_back(known.get());
  known->touched = true;
  return known.get();
}

void Detokenizer::Process(const StepOutputs& outputs) {
  touched_.clear();
  for (const PromptScoreOutput& score : outputs.prompt_scores) {
    Find(score.handle)->stream->AddPromptScore(score, outputs.logprobs);
  }
  for (const SequenceOutput& output : outputs.sequences) {
    LiveRequest& live = *Find(output.handle);
    const EndCause cause = output.finish_reason == FinishReason::kAborted ? live_.CauseOf(live) : EndCause::kNone;
    if (live.stream->AddOutput(output, outputs.logprobs, cause)) {
      engine_.AbortSequence(live.handle, output.sequence_index);
    }
    live.engine_ended |= output.request_finished;
  }
  for (LiveRequest* live : touched_) Deliver(*live);
}

void Detokenizer::Deliver(LiveRequest& live) {
  live.touched = false;
  if (!live.sink_ended) {
    const absl::Status& error = live.stream->error();
    if (!error.ok()) {
      live.sink_ended = true;
      on_end_(live, error);
      live.sink->Fail(error);
      if (!live.engine_ended) engine_.Abort(live.handle);  // one sequence failed: the others end too
    } else if (std::optional<OutputDelta> delta = live.stream->Take()) {
      live.sink_ended = delta->is_last();
      if (live.sink_ended) on_end_(live, absl::OkStatus());
      live.sink->Write(*std::move(delta));
    }
  }
  if (live.engine_ended) {
    QUIRE_CHECK(live.sink_ended);
    live_.Remove(live);
    known_.erase(live.handle);  // may destroy `live`
  }
}

}  // namespace quire
