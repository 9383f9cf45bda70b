#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_runner.h"

// Drives a ModelRunner without a scheduler: sequences of known ids, computed in whatever pieces a test wants. Every
// layer group has tables of its own; blocks that have slid out of a group's window are given back after each step, to
// be overwritten by whoever comes next, and their entries are 0.
namespace quire::testing {

// A piece of one sequence in a step: its next `num_tokens` ids.
struct StepPart {
  static constexpr int32_t kLastRow = -1, kNoRow = INT32_MAX;

  int sequence = 0;
  int32_t num_tokens = 0;
  int32_t sample_from = kLastRow;  // rows at this position and later are sampled greedily; kLastRow, kNoRow
  int32_t num_logprobs = SampleRow::kNoLogprobs;  // of the sampled rows
  bool score = false;                             // every row's next known id is scored (the last known id has none)
};

// What one row gave.
struct RowOutput {
  int32_t position = 0;
  int32_t token_id = -1;
  std::vector<TokenLogprob> logprobs = {};  // chosen (or target) first, then the best ids
};
struct PartOutput {
  std::vector<RowOutput> samples = {}, scores = {};
};

class StepDriver {
 public:
  // Blocks are handed out in an order shuffled by `seed`. The runner must outlive the driver.
  explicit StepDriver(ModelRunner& runner, uint32_t seed = 1);

  // A sequence nothing of which is computed; its number. Blocks are taken as steps need them.
  int Add(std::vector<int32_t> ids);
  void Append(int sequence, int32_t id) { sequences_[sequence].ids.push_back(id); }
  // Gives the blocks back; the number may not be used again.
  void Free(int sequence);
  int32_t num_computed(int sequence) const { return sequences_[sequence].num_computed; }
  // Blocks that the sequence holds in a layer group.
  int32_t num_held(int sequence, int group) const;
  size_t num_free() const { return free_blocks_.size(); }

  // One step of all parts (of distinct sequences), each computed at most up to its known ids; outputs in their order.
  // Ends the test program if blocks run out or a part asks for more than is known.
  absl::StatusOr<std::vector<PartOutput>> Step(const std::vector<StepPart>& parts);

 private:
  struct Sequence {
    std::vector<int32_t> ids = {};
    std::vector<std::vector<int32_t>> tables;  // by group
    int32_t num_computed = 0;
  };
  void Reserve(Sequence& sequence, int32_t num_tokens);
  void SlideOut(Sequence& sequence);
  void GiveBack(int32_t& block);

  ModelRunner& runner_;
  std::vector<int32_t> windows_;  // of the layer groups
  std::vector<int32_t> free_blocks_;
  std::vector<Sequence> sequences_;
  StepResult result_;
};

// Log-probabilities by id, from a row sampled with num_logprobs -1.
std::vector<float> LogprobsById(const RowOutput& row, int32_t vocab_size);

}  // namespace quire::testing
