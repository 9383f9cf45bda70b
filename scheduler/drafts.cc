// Speculation: a sequence that decodes computes drafts of what may follow in the same step. Each row samples as it
// would if all drafts before it were right, and counts only if they were.

#include <algorithm>
#include <memory>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

// However cheap rows are: a draft costs more than its row.
constexpr double kLeastChance = 0.25;

}  // namespace

int32_t Scheduler::MaxDrafts(const SequenceGroup& group) const {
  if (group.beams != nullptr) return 0;
  return std::min(max_drafts_, group.request.params.num_speculative_tokens.value_or(max_drafts_));
}

// What follows its tokens as of now. With drafts it foresees no tokens: they are checked once all before them are
// there.
void Scheduler::Draft(Sequence* sequence) {
  if (sequence->state != SequenceState::kRunning) return;
  if (sequence->speculation == nullptr) {
    sequence->speculation = std::make_unique<Speculation>(sequence->max_drafts, sequence->max_len);
  }
  sequence->num_drafts = sequence->speculation->Propose(sequence->tokens, least_chance_);
  sequence->foresees_tokens = sequence->num_drafts == 0 && sequence->group->foresees_tokens();
}

// How many drafts there is room for: drafts get what nobody else wants, and stop nobody in the next step.
int32_t Scheduler::TakeDrafts(Sequence* sequence) {
  const int32_t known = sequence->num_tokens();
  int32_t count = budget_.TakeDrafts(known, sequence->num_drafts);
  while (count > 0 && !blocks_->HoldsAll(sequence->table, known + count)) {
    const int32_t missing = blocks_->BlocksMissing(sequence->table, known + count);
    const bool fits = missing == 0 || missing + num_running_ + BlocksKept() <= blocks_->num_unused();
    if (fits && blocks_->Reserve(sequence->table, known + count, &copies_).ok()) break;
    budget_.Return(1);
    --count;
  }
  if (count == 0) return 0;
  return std::max(0, blocks_->ReserveStep(sequence->table, known + count, &copies_) - known);
}

// Behind the one token that it lacks.
void Scheduler::AddDrafts(ScheduledSequence* entry, SchedulePlan* plan) {
  Sequence* sequence = entry->sequence;
  const int32_t known = sequence->num_tokens();
  if (entry->num_tokens != 1 || entry->sample < 0 || entry->start + 1 != known || known <= sequence->prompt_len) return;
  entry->num_drafts = TakeDrafts(sequence);
  entry->num_tokens += entry->num_drafts;
  for (int32_t i = 1; i <= entry->num_drafts; ++i) {
    AddSample(*sequence, known + i, entry->first_row + i, plan);
  }
}

// A draft pays if it is accepted more often than the share that one more row for each sequence has in the step's time.
void Scheduler::WeighDrafts() {
  least_chance_ = kLeastChance;
  if (!step_time_.ready() || undrafted_load_.decode_rows == 0) return;
  const double all = step_time_.Predict(undrafted_load_);
  if (all > 0) least_chance_ = std::max(least_chance_, 1 - step_time_.Predict({}) / all);
}

}  // namespace quire
