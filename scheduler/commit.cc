#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Appends the log-probabilities of one row to *outputs and returns where they begin.
int32_t CopyLogprobs(const SampledToken& token, const StepResult& result, StepOutputs* outputs) {
  const auto begin = static_cast<int32_t>(outputs->logprobs.size());
  const auto from = result.logprobs.begin() + token.logprobs_begin;
  outputs->logprobs.insert(outputs->logprobs.end(), from, from + token.logprobs_count);
  return begin;
}

// None of its logits are bad.
bool IsSound(const ScheduledSequence& entry, const StepResult& result) {
  const auto scores = result.scores.begin() + entry.scores_begin;
  return (entry.sample < 0 || !result.samples[entry.sample].bad_logits) &&
         std::none_of(scores, scores + entry.scores_count, [](const SampledToken& s) { return s.bad_logits; });
}

// Shorter patterns mostly fail at their first token.
bool EndsInRepetition(absl::Span<const int32_t> output, const RepetitionDetection& rule) {
  for (int64_t size = rule.min_pattern_size; size <= rule.max_pattern_size; ++size) {
    const int64_t repeated = size * (rule.min_count - 1);  // tokens that equal those `size` before them
    if (size + repeated > static_cast<int64_t>(output.size())) return false;
    if (std::equal(output.end() - repeated, output.end(), output.end() - repeated - size)) return true;
  }
  return false;
}

// What a constraint adds to a sample; null: nothing, for its sequence has none.
const ConstrainedSample* ConstrainedOf(int32_t sample, const StepResult& result) {
  if (result.constrained.empty()) return nullptr;
  const auto found = std::lower_bound(result.constrained.begin(), result.constrained.end(), sample,
                                      [](const ConstrainedSample& c, int32_t index) { return c.sample < index; });
  return found != result.constrained.end() && found->sample == sample ? &*found : nullptr;
}

absl::Status BadLogits(int32_t position) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "logits of request hold NaN or infinity at position %d, or it allows no token there; it will fail again",
      position));
}

}  // namespace

void Scheduler::Commit(const SchedulePlan& plan, const StepResult& result, absl::Time now, StepOutputs* outputs,
                       double step_seconds) {
  QUIRE_CHECK(num_in_flight() > 0 && plan.step == committed_step_ + 1);
  QUIRE_CHECK(result.samples.size() == plan.samples.size() && result.scores.size() == plan.scores.size());
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnCommit(plan, result, now, step_seconds); });
  ++committed_step_;
  if (blocks_->integrity_enabled()) blocks_->EndIntegrityWork(plan.integrity, /*failed=*/false);
  step_time_.Learn(plan.load, step_seconds - LearnHostCopies(plan, result));
  admission_rate_.NoteStep(step_seconds, !waiting_.empty());
  if (max_drafts_ > 0) WeighDrafts();
  stats_.starts_per_second = admission_rate_.requests_per_second();
  stats_.start_tokens_per_second = admission_rate_.tokens_per_second();
  for (const ScheduledSequence& entry : plan.sequences) {
    const auto riders = absl::MakeConstSpan(plan.riders).subspan(entry.riders_begin, entry.riders_count);
    CommitSequence(entry, riders, result, now, outputs);
    if (!riders.empty()) CommitRiders(riders, result, now, outputs);
  }
  CleanUp();
}

void Scheduler::CommitSequence(const ScheduledSequence& entry, absl::Span<const PlanRider> riders,
                               const StepResult& result, absl::Time now, StepOutputs* outputs) {
  Sequence* sequence = entry.sequence;
  if (sequence->state == SequenceState::kFinished) {
    CommitEnded(entry, riders, result, now, outputs);
    return;
  }
  sequence->num_computed = entry.start + entry.num_known();
  if (entry.scores_count > 0 && !CommitScores(entry, result, now, outputs)) return;
  const SampledToken* token = entry.sample < 0 ? nullptr : &result.samples[entry.sample];
  if (token != nullptr && token->bad_logits) {
    EndGroup(sequence->group, FinishReason::kError, BadLogits(sequence->num_computed - 1), now, outputs);
    return;
  }
  blocks_->Publish(sequence->table, sequence->tokens, sequence->num_computed, sequence->keys);
  if (sequence->followed_step >= committed_step_) SealForFollowers(sequence);
  if (token == nullptr) return;
  if (!riders.empty()) ForkForRiders(sequence, riders);
  if (sequence->group->num_unfinished > 1) WakeSiblings(sequence->group);
  if (entry.num_drafts > 0) {
    CommitDrafts(entry, result, now, outputs);
  } else {
    CommitSample(sequence, entry.sample, result, now, outputs);
  }
  if (sequence->max_drafts > 0) Draft(sequence);
}

// As if each draft that is right had been a step's only row. What lies behind the last of these is written again by the
// steps that follow. The first row is computed and published.
void Scheduler::CommitDrafts(const ScheduledSequence& entry, const StepResult& result, absl::Time now,
                             StepOutputs* outputs) {
  Sequence* sequence = entry.sequence;
  SequenceGroup* group = sequence->group;
  ++stats_.drafting_steps;
  stats_.drafted_tokens += entry.num_drafts;
  group->drafted_tokens += entry.num_drafts;
  int32_t accepted = 0;
  while (true) {
    const int32_t sample = entry.sample + accepted;
    const bool right =
        accepted < entry.num_drafts && result.samples[sample].token_id == sequence->speculation->draft(accepted);
    stats_.accepted_tokens += right;
    group->accepted_tokens += right;
    CommitSample(sequence, sample, result, now, outputs);
    if (!right || sequence->state == SequenceState::kFinished) break;
    ++accepted;
    sequence->num_computed = sequence->num_planned = entry.start + 1 + accepted;
    if (result.samples[sample + 1].bad_logits) {
      EndGroup(group, FinishReason::kError, BadLogits(sequence->num_computed - 1), now, outputs);
      return;
    }
    blocks_->Publish(sequence->table, sequence->tokens, sequence->num_computed, sequence->keys);
    if (sequence->committed > 0) SetCommitted(sequence, sequence->committed - 1);
  }
  sequence->speculation->Learn(entry.num_drafts, accepted);
}

// One that ended while the step was in flight. Others may wait for what the step computed.
void Scheduler::CommitEnded(const ScheduledSequence& entry, absl::Span<const PlanRider> riders,
                            const StepResult& result, absl::Time now, StepOutputs* outputs) {
  Sequence* sequence = entry.sequence;
  stats_.surplus_tokens += entry.sample >= 0;
  if (!sequence->group->failed) {
    const bool awaited = sequence->followed_step >= committed_step_ || !riders.empty();
    const bool useful = awaited && sequence->num_computed == entry.start && IsSound(entry, result);
    if (useful) sequence->num_computed = std::min(entry.start + entry.num_known(), sequence->num_tokens());
    blocks_->Publish(sequence->table, sequence->tokens, sequence->num_computed, sequence->keys);
    const auto goes_on = [sequence](const PlanRider& r) {
      return r.sequence->group == sequence->group && r.sequence->rides();
    };
    if (useful && std::any_of(riders.begin(), riders.end(), goes_on)) CommitScores(entry, result, now, outputs);
    if (useful) ForkForRiders(sequence, riders);
  }
  if (!InFlight(*sequence)) ReleaseBlocks(sequence);
}

// False if the request has failed.
bool Scheduler::CommitScores(const ScheduledSequence& entry, const StepResult& result, absl::Time now,
                             StepOutputs* outputs) {
  SequenceGroup* group = entry.sequence->group;
  for (int32_t i = 0; i < entry.scores_count; ++i) {
    const SampledToken& score = result.scores[entry.scores_begin + i];
    if (score.bad_logits) {
      EndGroup(group, FinishReason::kError, BadLogits(group->next_score_position - 1), now, outputs);
      return false;
    }
    PromptScoreOutput event;
    event.handle = group->request.handle;
    event.position = group->next_score_position++;
    event.logprobs_begin = CopyLogprobs(score, result, outputs);
    event.logprobs_count = score.logprobs_count;
    event.rank = score.rank;
    outputs->prompt_scores.push_back(event);
  }
  return true;
}

// First tokens of those that rode on one whose own part is committed.
void Scheduler::CommitRiders(absl::Span<const PlanRider> riders, const StepResult& result, absl::Time now,
                             StepOutputs* outputs) {
  SendBack(riders);
  for (const PlanRider& rider : riders) {
    Sequence* sequence = rider.sequence;
    if (sequence->state != SequenceState::kRunning) continue;
    const SampledToken& token = result.samples[rider.sample];
    if (token.bad_logits) {
      EndGroup(sequence->group, FinishReason::kError, BadLogits(sequence->num_computed - 1), now, outputs);
      continue;
    }
    NoteAdmitted(sequence->group, {.num_tokens = sequence->group->prompt_len() - 1});
    WakeSiblings(sequence->group);
    CommitSample(sequence, rider.sample, result, now, outputs);
  }
}

void Scheduler::CommitSample(Sequence* sequence, int32_t sample, const StepResult& result, absl::Time now,
                             StepOutputs* outputs) {
  const SampledToken& token = result.samples[sample];
  const ConstrainedSample* constrained = ConstrainedOf(sample, result);
  if (sequence->group->beams != nullptr) {
    CommitBeam(sequence, token, result, now, outputs);
  } else if (constrained == nullptr) {
    CommitToken(sequence, token, /*ends=*/false, result, now, outputs);
  } else {
    CommitConstrained(sequence, token, *constrained, result, now, outputs);
  }
}

// The sample and what is forced behind it, until something ends the sequence.
void Scheduler::CommitConstrained(Sequence* sequence, const SampledToken& token, const ConstrainedSample& constrained,
                                  const StepResult& result, absl::Time now, StepOutputs* outputs) {
  if (!constrained.status.ok()) {
    EndGroup(sequence->group, FinishReason::kError, constrained.status, now, outputs);
    return;
  }
  int32_t left = constrained.forced_count;
  CommitToken(sequence, token, constrained.ends && left == 0, result, now, outputs);
  auto forced = result.forced.begin() + constrained.forced_begin;
  for (; left > 0 && sequence->state != SequenceState::kFinished; --left) {
    CommitToken(sequence, {.token_id = *forced++, .mirostat_bound = sequence->mirostat_bound},
                constrained.ends && left == 1, result, now, outputs);
  }
}

void Scheduler::SetStop(const SequenceGroup& group, int32_t token_id, SequenceOutput* event) const {
  event->stop_token_id = token_id;
  event->stopped_by_eos = !group.request.params.ignore_eos && Contains(limits_.eos_token_ids, token_id);
}

// `ends`: nothing may follow the token. That is an end whatever min_tokens and ignore_eos say, for nothing else is
// left.
void Scheduler::CommitToken(Sequence* sequence, const SampledToken& token, bool ends, const StepResult& result,
                            absl::Time now, StepOutputs* outputs) {
  SequenceGroup& group = *sequence->group;
  const SamplingParams& params = group.request.params;
  sequence->tokens.push_back(token.token_id);
  sequence->mirostat_bound = token.mirostat_bound;
  ++stats_.generation_tokens;
  if (group.first_token_time == absl::InfinitePast()) group.first_token_time = now;

  SequenceOutput& event = outputs->sequences.emplace_back();
  event.handle = group.request.handle;
  event.sequence_index = sequence->index;
  event.token_id = token.token_id;
  if (token.logprobs_count > 0) event.logprobs_begin = CopyLogprobs(token, result, outputs);
  event.logprobs_count = token.logprobs_count;
  event.rank = token.rank;
  event.time = now;
  const int32_t num_output = sequence->num_tokens() - group.prompt_len();
  const bool ending_id =
      Contains(group.ending_ids, token.token_id) || (ends && Contains(limits_.eos_token_ids, token.token_id));
  if (ends || (ending_id && num_output > params.min_tokens)) {
    event.finish_reason = FinishReason::kStop;
    if (ending_id) SetStop(group, token.token_id, &event);
  } else if (sequence->num_tokens() >= group.max_len) {
    event.finish_reason = FinishReason::kLength;
  } else if (params.repetition_detection.max_pattern_size > 0 && num_output > params.min_tokens &&
             EndsInRepetition(absl::MakeConstSpan(sequence->tokens).last(num_output), params.repetition_detection)) {
    event.finish_reason = FinishReason::kRepetition;
  }
  CompleteEvent(sequence, &event);
}

}  // namespace quire
