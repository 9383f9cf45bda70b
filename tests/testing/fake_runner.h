#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "block_manager/block_manager.h"
#include "model/sampling_params.h"
#include "model/step_result.h"
#include "scheduler/request.h"
#include "scheduler/schedule_plan.h"

namespace quire {

// A model without arithmetic that notices every mistake in block tables: K/V of a token is a hash of it and of all
// tokens before it, kept per slot; the next token is a hash of all K/V of the sequence, read through its table. A wrong
// table, an early publication, a lost or late copy or a stale block change the tokens. It also fails the test when a
// plan is to write to a block that is shared or findable, or twice to one slot. If the plan carries IntegrityWork, it
// also keeps checksums of all findable blocks, compares them after every step and poisons freed ones.
//
// With layer groups each group has K/V of its own in its pages, and a row reads what its window shows there; besides
// K/V a slot keeps the hash of all up to it, for those that see no further back. All groups must give the same. Windows
// are at least 2. A place is a block, or a page.
//
// `top_k` ids, from 0 on, are all that come where it is set, as long as any of them may: then texts repeat themselves.
//
// Like a device it takes what it needs of a plan when that is submitted and runs steps in order, at most two in flight;
// tokens that the step before samples stay with it.
class FakeRunner {
 public:
  static constexpr int32_t kVocabSize = 50;

  // `num_places`: those of the host included.
  FakeRunner(const BlockManager* blocks, int32_t num_places);

  // The plan becomes a step in flight. It is executed in here if `eager`, or when it is waited for.
  void Submit(const SchedulePlan& plan);
  // The result of the earliest step in flight.
  void Wait(StepResult* result);
  // The earliest step in flight failed; unless `eager` none of its work was done.
  void Lose();

  void Run(const SchedulePlan& plan, StepResult* result) {
    Submit(plan);
    Wait(result);
  }

  // The log-probability of each id behind these tokens, best first, ties by id.
  static std::vector<TokenLogprob> Continuations(absl::Span<const int32_t> tokens);
  // What each of the n sequences of a request must give, computed without any blocks: the tokens that are sampled when
  // nothing but max_len (tokens of prompt + output) and `eos_ids` ends it; with beam search, the n best hypotheses.
  static std::vector<std::vector<int32_t>> ExpectedOutputs(const EngineRequest& request, int32_t max_len,
                                                           absl::Span<const int32_t> eos_ids);
  // The log-probabilities of prompt positions 1 onward.
  static std::vector<float> ExpectedScores(absl::Span<const int32_t> prompt);

  int64_t tokens_computed() const { return tokens_computed_; }
  bool eager = false;
  // Requests (by seed) whose next sampled row shall hold bad logits.
  std::vector<uint64_t> bad_seeds;

 private:
  // A step in flight. Nothing in it points into sequences.
  struct Step {
    SchedulePlan plan;
    std::vector<BlockId> places;       // tables, one sequence after another, the groups of each one after another
    std::vector<int32_t> tokens;       // of the plan's rows; -1: sampled by the step before
    std::vector<int64_t> first_place;  // by sequence: into `places`
    std::vector<int32_t> table_size;   // by sequence
    std::vector<bool> findable;        // by place; empty without the integrity mode
    bool executed = false;
    StepResult result;
  };

  int32_t num_groups() const { return blocks_->pages() == nullptr ? 1 : blocks_->pages()->num_groups(); }
  BlockId PlaceOf(int32_t group, BlockId block) const;
  int32_t FirstSeen(int32_t group, int32_t position) const;
  void CheckCopies(const SchedulePlan& plan) const;
  void TakeTable(const ScheduledSequence& entry, Step* step) const;
  void CheckWrites(const ScheduledSequence& entry);
  void TakeTokens(const ScheduledSequence& entry, Step* step) const;
  void Execute(Step* step);
  void Store(const Step& step, size_t index);
  void Answer(const Step& step, size_t index, StepResult* result);
  int64_t Slot(const Step& step, size_t index, int32_t group, int32_t position) const;
  uint64_t Attend(const Step& step, size_t index, int32_t group, int32_t position) const;
  void Copy(const BlockCopy& copy);
  void Poison(absl::Span<const BlockId> places);
  uint64_t Checksum(BlockId place, int32_t num_tokens) const;
  void CheckSealed(const IntegrityWork& work);
  void CheckAllSealed(const Step& step);

  const BlockManager* blocks_;
  const int32_t block_size_;
  const int32_t num_places_;
  std::vector<uint64_t> memory_;     // by slot: K/V
  std::vector<uint64_t> contexts_;   // by slot: of all K/V up to it
  std::vector<int64_t> written_in_;  // by slot: the latest step that wrote it
  struct Sealed {
    int32_t num_tokens = 0;  // 0: was lost with a failed step
    uint64_t checksum = 0;
  };
  std::map<BlockId, Sealed> sealed_;
  Step steps_[2];  // in flight: the first num_in_flight_, in order
  int32_t num_in_flight_ = 0;
  std::vector<SampledToken> last_samples_;  // of the latest step that was executed or lost
  int64_t tokens_computed_ = 0;
};

}  // namespace quire
