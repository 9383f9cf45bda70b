#include "tests/testing/step_driver.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire::testing {
namespace {

// The arrays of one ForwardBatch.
struct BatchArrays {
  std::vector<int32_t> token_ids, positions, slots, cu_q_lens = {0}, context_lens, block_tables;
  std::vector<SampleRow> samples;
  std::vector<ScoreRow> scores;
};

std::vector<TokenLogprob> LogprobsOf(const StepResult& result, const SampledToken& token) {
  const auto begin = result.logprobs.begin() + token.logprobs_begin;
  return {begin, begin + token.logprobs_count};
}

}  // namespace

StepDriver::StepDriver(ModelRunner& runner, uint32_t seed) : runner_(runner), free_blocks_(runner.num_kv_blocks() - 1) {
  std::iota(free_blocks_.begin(), free_blocks_.end(), 1);  // 0 is the null block
  std::mt19937 random(seed);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), random);
}

int StepDriver::Add(std::vector<int32_t> ids) {
  sequences_.push_back({std::move(ids), {}, 0});
  return static_cast<int>(sequences_.size()) - 1;
}

void StepDriver::Free(int sequence) {
  std::vector<int32_t>& blocks = sequences_[sequence].blocks;
  free_blocks_.insert(free_blocks_.end(), blocks.begin(), blocks.end());
  blocks.clear();
}

void StepDriver::Reserve(Sequence& sequence, int32_t num_tokens) {
  while (static_cast<int64_t>(sequence.blocks.size()) * runner_.block_size() < num_tokens) {
    QUIRE_CHECK(!free_blocks_.empty());
    sequence.blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
}

absl::StatusOr<std::vector<PartOutput>> StepDriver::Step(const std::vector<StepPart>& parts) {
  std::vector<PartOutput> outputs(parts.size());
  BatchArrays arrays;
  size_t stride = 0;
  for (const StepPart& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    QUIRE_CHECK(part.num_tokens >= 1 &&
                sequence.num_computed + part.num_tokens <= static_cast<int32_t>(sequence.ids.size()));
    Reserve(sequence, sequence.num_computed + part.num_tokens);
    stride = std::max(stride, sequence.blocks.size());
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    const StepPart& part = parts[p];
    Sequence& sequence = sequences_[part.sequence];
    const int32_t begin = sequence.num_computed, end = begin + part.num_tokens;
    const int32_t sample_from = part.sample_from == StepPart::kLastRow ? end - 1 : part.sample_from;
    for (int32_t position = begin; position < end; ++position) {
      const auto row = static_cast<int32_t>(arrays.token_ids.size());
      arrays.token_ids.push_back(sequence.ids[position]);
      arrays.positions.push_back(position);
      arrays.slots.push_back(sequence.blocks[position / runner_.block_size()] * runner_.block_size() +
                             position % runner_.block_size());
      if (position >= sample_from) {
        arrays.samples.push_back({.logits_row = row, .num_logprobs = part.num_logprobs});
        outputs[p].samples.push_back({.position = position, .token_id = -1});
      }
      if (part.score && position + 1 < static_cast<int32_t>(sequence.ids.size())) {
        arrays.scores.push_back({.logits_row = row, .target_id = sequence.ids[position + 1]});
        outputs[p].scores.push_back({.position = position, .token_id = -1});
      }
    }
    arrays.cu_q_lens.push_back(static_cast<int32_t>(arrays.token_ids.size()));
    arrays.context_lens.push_back(end);
    arrays.block_tables.insert(arrays.block_tables.end(), sequence.blocks.begin(), sequence.blocks.end());
    arrays.block_tables.resize(arrays.context_lens.size() * stride, 0);
    sequence.num_computed = end;
  }

  ForwardBatch batch;
  batch.token_ids = arrays.token_ids;
  batch.positions = arrays.positions;
  batch.slot_mapping = arrays.slots;
  batch.cu_q_lens = arrays.cu_q_lens;
  batch.context_lens = arrays.context_lens;
  batch.block_tables = arrays.block_tables;
  batch.block_table_stride = static_cast<int64_t>(stride);
  batch.samples = arrays.samples;
  batch.scores = arrays.scores;
  QUIRE_RETURN_IF_ERROR(runner_.Submit(batch));
  QUIRE_RETURN_IF_ERROR(runner_.Wait(&result_));

  size_t next_sample = 0, next_score = 0;
  for (PartOutput& output : outputs) {
    for (RowOutput& row : output.samples) {
      const SampledToken& token = result_.samples[next_sample++];
      row.token_id = token.token_id;
      row.logprobs = LogprobsOf(result_, token);
    }
    for (RowOutput& row : output.scores) {
      const SampledToken& token = result_.scores[next_score++];
      row.token_id = token.token_id;
      row.logprobs = LogprobsOf(result_, token);
    }
  }
  return outputs;
}

std::vector<float> LogprobsById(const RowOutput& row, int32_t vocab_size) {
  QUIRE_CHECK(static_cast<int32_t>(row.logprobs.size()) == vocab_size + 1);
  std::vector<float> by_id(vocab_size);
  for (size_t i = 1; i < row.logprobs.size(); ++i) by_id[row.logprobs[i].token_id] = row.logprobs[i].logprob;
  return by_id;
}

}  // namespace quire::testing
