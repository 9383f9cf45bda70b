#include "scheduler/token_constraints.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "absl/strings/str_cat.h"
#include "scheduler/sequence_group.h"

namespace quire {
namespace {

bool Allows(absl::Span<const uint32_t> mask, int32_t id) { return (mask[id / 32] >> (id % 32) & 1) != 0; }

// Whether some token of the mask is not banned. Ids may be banned twice.
bool LeavesSome(absl::Span<const uint32_t> mask, int32_t num_allowed, absl::Span<const int32_t> banned) {
  for (auto id = banned.begin(); id != banned.end(); ++id) {
    num_allowed -= Allows(mask, *id) && std::find(banned.begin(), id, *id) == id;
  }
  return num_allowed > 0;
}

// Whether a sample of this sequence gives nothing but its token.
bool MayForce(const SamplingParams& params) {
  const bool keeps_state = params.rules != nullptr && params.rules->mirostat_tau > 0;
  return !params.logprobs.has_value() && !keeps_state;
}

size_t NumWords(const TokenConstraint& constraint) { return (constraint.vocab_size() + 31) / 32; }

// Where the sequence stands. A first token may have been sampled and dropped, with the row that it rode on.
const TokenConstraint& ConstraintOf(const Sequence& sequence) {
  return sequence.has_output() ? *sequence.constraint : *sequence.group->request.constraint;
}

// Takes the token behind `num_tokens` ones.
absl::Status Advance(Sequence* sequence, int32_t num_tokens, int32_t token_id, bool append_forced,
                     ConstrainedSample* out, std::vector<int32_t>* forced) {
  if (!sequence->has_output()) sequence->constraint = ConstraintOf(*sequence).Clone();
  TokenConstraint& constraint = *sequence->constraint;
  if (absl::Status status = constraint.Accept(token_id); !status.ok()) return status;
  // Behind the sample there is room for so many.
  int32_t room = sequence->group->max_len - num_tokens - 1;
  for (; append_forced && room > 0 && constraint.num_allowed() == 1; --room) {
    forced->push_back(constraint.only_token());
    ++out->forced_count;
    if (absl::Status status = constraint.Accept(forced->back()); !status.ok()) return status;
  }
  out->ends = constraint.num_allowed() == 0;
  return absl::OkStatus();
}

}  // namespace

void FillMasks(SchedulePlan* plan) {
  size_t num_words = 0;
  plan->ForEachSample([&](const Sequence& sequence, int32_t, int32_t num_drafts) {
    if (sequence.group->request.constraint != nullptr) num_words += (1 + num_drafts) * NumWords(ConstraintOf(sequence));
  });
  plan->masks.resize(num_words);
  uint32_t* next = plan->masks.data();
  plan->ForEachSample([&](const Sequence& sequence, int32_t sample, int32_t num_drafts) {
    if (sequence.group->request.constraint == nullptr) return;
    const TokenConstraint* constraint = &ConstraintOf(sequence);
    std::unique_ptr<TokenConstraint> ahead;  // where it would stand behind the drafts so far
    for (int32_t i = 0;; ++i, ++sample) {
      const absl::Span<uint32_t> mask(next, NumWords(*constraint));
      next += mask.size();
      constraint->FillMask(mask);
      SampleExtras& extras = plan->extras[plan->samples[sample].more - plan->extras.data()];
      extras.allowed_mask = mask;
      if (!LeavesSome(mask, constraint->num_allowed(), extras.banned_ids)) extras.banned_ids = {};
      if (i == num_drafts) break;
      // Rows behind a draft that may not come count for nothing.
      if (i == 0) ahead = constraint->Clone();
      const int32_t draft = sequence.speculation->draft(i);
      if (!Allows(mask, draft) || !ahead->Accept(draft).ok() || ahead->num_allowed() == 0) break;
      constraint = ahead.get();
    }
  });
}

void AdvanceConstraints(const SchedulePlan& plan, bool append_forced, StepResult* result) {
  result->constrained.clear();
  result->forced.clear();
  plan.ForEachSample([&](const Sequence& scheduled, int32_t sample, int32_t num_drafts) {
    const SequenceGroup& group = *scheduled.group;
    if (group.request.constraint == nullptr || scheduled.state == SequenceState::kFinished) return;
    Sequence* sequence = &scheduled.group->sequences[scheduled.index];
    for (int32_t i = 0; i <= num_drafts; ++i) {
      const SampledToken& token = result->samples[sample + i];
      if (token.bad_logits) return;
      const bool goes_on = i < num_drafts && token.token_id == scheduled.speculation->draft(i);  // with the next row
      ConstrainedSample& out = result->constrained.emplace_back();
      out.sample = sample + i;
      out.forced_begin = static_cast<int32_t>(result->forced.size());
      const bool forces = append_forced && !goes_on && MayForce(group.request.params);
      const absl::Status status =
          Advance(sequence, sequence->num_tokens() + i, token.token_id, forces, &out, &result->forced);
      if (!status.ok()) {
        // Whatever the cause, to ask again would not help.
        out.status = absl::FailedPreconditionError(absl::StrCat("structured output: ", status.message()));
      }
      if (!status.ok() || out.ends || !goes_on) return;
    }
  });
}

}  // namespace quire
