// What beam search adds to the scheduler: the sequences of a group follow the beams that BeamSearch chooses.

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/beam_group.h"
#include "scheduler/scheduler.h"

namespace quire {

std::unique_ptr<BeamGroup> Scheduler::MakeBeams(const SequenceGroup& group) {
  const SamplingParams& params = group.request.params;
  if (params.beam_width == 0) return nullptr;
  return std::unique_ptr<BeamGroup>(new BeamGroup{.search = BeamSearch({
                                                      .width = params.beam_width,
                                                      .max_output = group.max_len - group.prompt_len(),
                                                      .min_output = params.min_tokens,
                                                      .length_penalty = params.length_penalty,
                                                      .early_stopping = params.early_stopping,
                                                      .ending_ids = group.ending_ids,
                                                      .num_logprobs = std::max(0, params.logprobs.value_or(0)),
                                                  })});
}

// A beam's last token is computed. Once this is so for all of them, the next beams are chosen.
void Scheduler::CommitBeam(Sequence* sequence, const SampledToken& token, const StepResult& result, absl::Time now,
                           StepOutputs* outputs) {
  SequenceGroup& group = *sequence->group;
  BeamGroup& beams = *group.beams;
  const auto beam = std::find(beams.slots.begin(), beams.slots.end(), sequence->index) - beams.slots.begin();
  // The first entry is the chosen token, which beam search does not ask for.
  beams.search.Offer(static_cast<int32_t>(beam),
                     absl::MakeConstSpan(result.logprobs).subspan(token.logprobs_begin + 1, token.logprobs_count - 1));
  if (!beams.search.ready()) return;
  if (group.first_token_time == absl::InfinitePast()) group.first_token_time = now;
  beams.search.Advance();
  if (beams.search.done()) {
    FinishBeams(&group, now, outputs);
  } else {
    MoveBeams(&group);
  }
}

// A beam's first continuation keeps its sequence; others fork into sequences whose beams were dropped.
void Scheduler::MoveBeams(SequenceGroup* group) {
  BeamGroup& beams = *group->beams;
  const absl::Span<const BeamSearch::Beam> next = beams.search.beams();
  const auto width = static_cast<int32_t>(group->sequences.size());
  std::vector<bool> used(width, false);
  std::vector<int32_t> slots(next.size(), -1);
  for (size_t i = 0; i < next.size(); ++i) {
    const int32_t parent = beams.slots[next[i].parent];
    if (used[parent]) continue;
    slots[i] = parent;
    used[parent] = true;
  }
  for (const int32_t slot : beams.slots) {
    if (used[slot]) continue;
    group->sequences[slot].table.Clear();  // a dropped beam's last block is not worth finding: not sealed
    group->sequences[slot].num_computed = group->sequences[slot].num_planned = 0;
  }
  int32_t free_slot = 0;
  for (size_t i = 0; i < next.size(); ++i) {
    if (slots[i] >= 0) continue;
    while (used[free_slot]) ++free_slot;
    used[free_slot] = true;
    slots[i] = free_slot;
    ForkBeam(group->sequences[beams.slots[next[i].parent]], &group->sequences[free_slot]);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    Sequence* sequence = &group->sequences[slots[i]];
    sequence->tokens.push_back(next[i].token_id);
    if (sequence->state == SequenceState::kBlocked) SetState(sequence, SequenceState::kWaiting);
  }
  for (int32_t slot = 0; slot < width; ++slot) {
    if (used[slot]) continue;
    if (group->sequences[slot].state != SequenceState::kBlocked) {
      SetState(&group->sequences[slot], SequenceState::kBlocked);
    }
  }
  beams.slots = std::move(slots);
}

// O(blocks): nothing is copied but, once somebody writes to it, a part-filled last block. `to` holds no blocks.
void Scheduler::ForkBeam(const Sequence& from, Sequence* to) {
  Start(to);
  to->tokens = from.tokens;
  to->keys = from.keys;
  to->probed_step = 0;
  const bool has_place = to->state == SequenceState::kRunning || num_running_ < options_.max_num_seqs;
  if (from.state == SequenceState::kRunning && has_place) {
    to->table = blocks_->Fork(from.table, from.num_computed);
    to->table.ReserveCapacity(blocks_->BlocksFor(to->group->max_len));
    to->num_computed = to->num_planned = to->table.num_stored();
  }
  if (to->num_computed == 0) {  // it computes its tokens again when its turn comes
    if (to->state == SequenceState::kRunning) SetState(to, SequenceState::kWaiting);
  } else if (to->state != SequenceState::kRunning) {
    SetState(to, SequenceState::kRunning);
  }
}

// The best hypotheses become the request's sequences, all at once.
void Scheduler::FinishBeams(SequenceGroup* group, absl::Time now, StepOutputs* outputs) {
  const SamplingParams& params = group->request.params;
  const std::vector<BeamSearch::Hypothesis> best = group->beams->search.Best(params.n);
  if (static_cast<int32_t>(best.size()) < params.n) {
    EndGroup(
        group, FinishReason::kError,
        absl::FailedPreconditionError(absl::StrFormat(
            "beam search found %d hypotheses, n is %d: the model gives nothing else a chance", best.size(), params.n)),
        now, outputs);
    return;
  }
  DismissUnseen(group);
  for (int32_t i = 0; i < params.n; ++i) {
    const BeamSearch::Hypothesis& hypothesis = best[i];
    stats_.generation_tokens += static_cast<int64_t>(hypothesis.tokens.size());
    for (const BeamSearch::Token& token : hypothesis.tokens) {
      SequenceOutput event;
      event.handle = group->request.handle;
      event.sequence_index = i;
      event.token_id = token.token_id;
      event.time = now;
      if (params.logprobs.has_value()) {
        event.rank = token.rank;
        event.logprobs_begin = static_cast<int32_t>(outputs->logprobs.size());
        event.logprobs_count = static_cast<int32_t>(token.best.size()) + 1;
        outputs->logprobs.push_back({token.token_id, token.logprob});
        outputs->logprobs.insert(outputs->logprobs.end(), token.best.begin(), token.best.end());
      }
      if (&token == &hypothesis.tokens.back()) {
        event.score = hypothesis.score;
        event.finish_reason = hypothesis.ended ? FinishReason::kStop : FinishReason::kLength;
        if (hypothesis.ended) SetStop(*group, token.token_id, &event);
      }
      EmitEvent(&group->sequences[i], std::move(event), outputs);
    }
  }
}

// The last in order of the beams that only wait for others gives up its blocks and its place. False if there is none.
bool Scheduler::PreemptIdleBeam() {
  Sequence* last = nullptr;
  for (Sequence* sequence : running_) {
    if (IsIdleBeam(*sequence) && (last == nullptr || Before()(last, sequence))) last = sequence;
  }
  if (last == nullptr) return false;
  Preempt(last, PreemptReason::kIdleBeam, nullptr);
  CleanUp();
  return true;
}

}  // namespace quire
