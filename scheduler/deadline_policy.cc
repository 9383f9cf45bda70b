#include "scheduler/deadline_policy.h"

#include <algorithm>

namespace quire {
namespace {

constexpr double kSafety = 0.95;  // of the time that a running request has for each step

// Output tokens still to come: all that it may have if nothing but the length ends it, else `if_free`, a guess or a
// lower bound.
int32_t OutputsLeft(const SequenceGroup& group, int32_t known, int32_t if_free) {
  const int32_t most = group.max_len - known;
  if (group.ending_ids.empty() && group.request.params.stop_strings.empty()) return most;
  return std::clamp(if_free, 1, std::max(1, most));
}

int32_t Known(const Sequence& sequence) {
  return sequence.tokens.empty() ? sequence.group->prompt_len() : sequence.num_foreseen();
}

// A guess: what sequences usually have, less what this one has.
int32_t ExpectedLeft(const Sequence& sequence) {
  const SequenceGroup& group = *sequence.group;
  const int32_t known = Known(sequence);
  const int32_t usual = group.lane->ExpectOutput(group.request.params.max_tokens);
  return OutputsLeft(group, known, usual - (known - group.prompt_len()));
}

}  // namespace

DeadlinePolicy::Work DeadlinePolicy::WorkOf(const SequenceGroup& group, int32_t known, int32_t computed,
                                            int32_t outputs) {
  const int64_t missing = known - computed;
  // The step that ends the prompt gives the first token; a sequence that decodes gives one in each step.
  const bool decodes = missing <= 1 && known > group.prompt_len();
  return {.prefill = decodes ? 0 : missing, .steps = decodes ? outputs : outputs - 1, .context = known + outputs / 2};
}

double DeadlinePolicy::SecondsAlone(const Work& work) const {
  double seconds = 0;
  if (work.prefill > 0) {
    StepLoad load;
    load.Add(0, work.prefill, false);
    seconds += model_.Predict(load);
  }
  StepLoad load;
  load.Add(work.context, 1, true);
  return seconds + static_cast<double>(work.steps) * model_.Predict(load);
}

int64_t DeadlinePolicy::RankOf(const SequenceGroup& group, int64_t) const {
  const absl::Time arrival = group.request.arrival;
  const int32_t outputs =
      OutputsLeft(group, group.prompt_len(), group.lane->ExpectOutput(group.request.params.max_tokens));
  absl::Time start = arrival + kPatience;
  if (group.request.deadline != absl::InfiniteFuture()) {
    const double alone = SecondsAlone(WorkOf(group, group.prompt_len(), 0, outputs));
    start = std::min(start, group.request.deadline - absl::Seconds(alone));
  }
  if (group.request.ttft_target != absl::InfiniteDuration()) {
    const double first = SecondsAlone(WorkOf(group, group.prompt_len(), 0, 1));
    start = std::min(start, arrival + group.request.ttft_target - absl::Seconds(first));
  }
  return absl::ToUnixMicros(start);
}

bool DeadlinePolicy::IsHopeless(const Sequence& sequence, absl::Time now) const {
  const SequenceGroup& group = *sequence.group;
  if (!model_.ready() || group.request.deadline == absl::InfiniteFuture()) return false;
  const bool running = sequence.state == SequenceState::kRunning;
  if (running && sequence.num_uncomputed() == 0) return false;  // ends with a plan in flight
  const int32_t known = Known(sequence);
  const int32_t done = known - group.prompt_len();
  // Certain ones only: the fewest outputs that it can have, everything that may be cached found.
  const int32_t outputs = OutputsLeft(group, known, group.request.params.min_tokens - done);
  const int32_t computed = running ? sequence.num_planned : sequence.probed_hit;
  return now + absl::Seconds(SecondsAlone(WorkOf(group, known, computed, outputs))) > group.request.deadline;
}

double DeadlinePolicy::BeginStep(absl::Time now, absl::Span<Sequence* const> running) {
  now_ = now;
  decoding_ = {};
  pending_prefill_ = 0;
  for (const Sequence* sequence : running) {
    decoding_.Add(sequence->num_foreseen() - 1, 1, true);
    if (sequence->num_uncomputed() > 1) pending_prefill_ += sequence->num_uncomputed();
  }
  const double least = model_.Predict(decoding_);
  limit_ = std::numeric_limits<double>::infinity();
  for (const Sequence* sequence : running) {
    const EngineRequest& request = sequence->group->request;
    if (request.tpot_target != absl::InfiniteDuration())
      limit_ = std::min(limit_, std::max(least, absl::ToDoubleSeconds(request.tpot_target)));
    if (request.deadline == absl::InfiniteFuture() || sequence->num_uncomputed() != 1) continue;
    const double pace = kSafety * absl::ToDoubleSeconds(request.deadline - now) / ExpectedLeft(*sequence);
    // One that is late whatever the others do must not hold them up.
    if (pace >= least) limit_ = std::min(limit_, pace);
  }
  return limit_;
}

bool DeadlinePolicy::MayStart(const Sequence& sequence) {
  const EngineRequest& request = sequence.group->request;
  const int32_t known = Known(sequence);
  StepLoad with = decoding_;
  with.Add(known, 1, true);
  const double decode = model_.PredictHigh(with);
  if (decode > limit_) return false;
  if (request.deadline == absl::InfiniteFuture() || !model_.ready()) return true;
  const int32_t outputs = ExpectedLeft(sequence);
  const double available = absl::ToDoubleSeconds(request.deadline - now_);
  // From its first token on it sets the pace itself, so that prefills share what its own slack leaves.
  const double pace = std::min(limit_, available / outputs);
  const int64_t prefill = pending_prefill_ + known - sequence.probed_hit;
  StepLoad load;
  load.Add(0, prefill, false);
  const double prefill_seconds = model_.Predict(load);
  // Each step of `pace` seconds leaves pace - decode for prefills.
  double until_first = prefill_seconds;
  if (decoding_.decode_rows > 0 && pace < std::numeric_limits<double>::infinity()) {
    if (pace <= decode) return false;
    until_first = prefill_seconds * pace / (pace - model_.Predict(decoding_));
  }
  return until_first + outputs * decode <= available;
}

void DeadlinePolicy::NoteStart(const Sequence& sequence) {
  decoding_.Add(sequence.num_tokens(), 1, true);
  pending_prefill_ += sequence.num_uncomputed();
  const EngineRequest& request = sequence.group->request;
  if (request.tpot_target != absl::InfiniteDuration())
    limit_ = std::min(limit_, absl::ToDoubleSeconds(request.tpot_target));
}

}  // namespace quire
