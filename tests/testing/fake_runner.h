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
// table, an early publication, a lost or late copy or a stale block change the tokens. Run also fails the test when a
// step writes to a block that is shared or findable, or twice to one slot. If the plan carries IntegrityWork, it also
// keeps checksums of all findable blocks, compares them after every step and poisons freed ones.
class FakeRunner {
 public:
  static constexpr int32_t kVocabSize = 50;

  // `num_blocks`: those of the host included.
  FakeRunner(const BlockManager* blocks, int32_t num_blocks);

  // Executes a plan on the shadow memory.
  void Run(const SchedulePlan& plan, StepResult* result);

  // The step of this plan failed: none of its work was done.
  void Lose(const SchedulePlan& plan);

  // The log-probability of each id behind these tokens, best first, ties by id.
  static std::vector<TokenLogprob> Continuations(absl::Span<const int32_t> tokens);
  // What sequence `index` of a request must give, computed without any blocks: the tokens that are sampled when
  // nothing but max_len (tokens of prompt + output) and `eos_ids` ends it; with beam search, hypothesis `index`.
  static std::vector<int32_t> ExpectedOutput(const EngineRequest& request, int32_t index, int32_t max_len,
                                             absl::Span<const int32_t> eos_ids);
  // The log-probabilities of prompt positions 1 onward.
  static std::vector<float> ExpectedScores(absl::Span<const int32_t> prompt);

  int64_t tokens_computed() const { return tokens_computed_; }
  // Requests (by seed) whose next sampled row shall hold bad logits.
  std::vector<uint64_t> bad_seeds;

 private:
  void Copy(const BlockCopy& copy);
  uint64_t Checksum(BlockId block, int32_t num_tokens) const;
  void CheckSealed(const IntegrityWork& work);
  void Poison(absl::Span<const BlockId> blocks);
  void CheckAllSealed();
  void Store(const ScheduledSequence& entry);
  uint64_t Attend(const Sequence& sequence, int32_t position) const;
  uint64_t& Slot(const Sequence& sequence, int32_t position);

  const BlockManager* blocks_;
  const int32_t block_size_;
  std::vector<uint64_t> memory_;     // by slot
  std::vector<int64_t> written_in_;  // by slot: the latest step that wrote it
  struct Sealed {
    int32_t num_tokens = 0;  // 0: was lost with a failed step
    uint64_t checksum = 0;
  };
  std::map<BlockId, Sealed> sealed_;
  int64_t step_ = 0;
  int64_t tokens_computed_ = 0;
};

}  // namespace quire
