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
  std::vector<int32_t> token_ids, positions, cu_q_lens = {0}, context_lens;
  std::vector<std::vector<int32_t>> slots, block_tables;  // by group
  std::vector<SampleRow> samples;
  std::vector<ScoreRow> scores;
};

std::vector<TokenLogprob> LogprobsOf(const StepResult& result, const SampledToken& token) {
  const auto begin = result.logprobs.begin() + token.logprobs_begin;
  return {begin, begin + token.logprobs_count};
}

}  // namespace

StepDriver::StepDriver(ModelRunner& runner, uint32_t seed)
    : runner_(runner), windows_(runner.group_windows()), free_blocks_(runner.num_kv_blocks() - 1) {
  std::iota(free_blocks_.begin(), free_blocks_.end(), 1);  // 0 is the null block
  std::mt19937 random(seed);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), random);
}

int StepDriver::Add(std::vector<int32_t> ids) {
  sequences_.push_back({std::move(ids), std::vector<std::vector<int32_t>>(windows_.size()), 0});
  return static_cast<int>(sequences_.size()) - 1;
}

void StepDriver::GiveBack(int32_t& block) {
  if (block != 0) free_blocks_.push_back(block);
  block = 0;
}

void StepDriver::Free(int sequence) {
  for (std::vector<int32_t>& table : sequences_[sequence].tables) {
    for (int32_t& block : table) GiveBack(block);
    table.clear();
  }
}

int32_t StepDriver::num_held(int sequence, int group) const {
  const std::vector<int32_t>& table = sequences_[sequence].tables[group];
  return static_cast<int32_t>(table.size() - std::count(table.begin(), table.end(), 0));
}

void StepDriver::Reserve(Sequence& sequence, int32_t num_tokens) {
  for (std::vector<int32_t>& table : sequence.tables) {
    while (static_cast<int64_t>(table.size()) * runner_.block_size() < num_tokens) {
      QUIRE_CHECK(!free_blocks_.empty());
      table.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
  }
}

void StepDriver::SlideOut(Sequence& sequence) {
  for (size_t g = 0; g < windows_.size(); ++g) {
    if (windows_[g] == 0) continue;
    const int32_t first_seen = std::max(0, sequence.num_computed - windows_[g] + 1);  // by the next row
    for (int32_t i = 0; i < first_seen / runner_.block_size(); ++i) GiveBack(sequence.tables[g][i]);
  }
}

absl::StatusOr<std::vector<PartOutput>> StepDriver::Step(const std::vector<StepPart>& parts) {
  std::vector<PartOutput> outputs(parts.size());
  BatchArrays arrays;
  arrays.slots.resize(windows_.size());
  arrays.block_tables.resize(windows_.size());
  size_t stride = 0;
  for (const StepPart& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    QUIRE_CHECK(part.num_tokens >= 1 &&
                sequence.num_computed + part.num_tokens <= static_cast<int32_t>(sequence.ids.size()));
    Reserve(sequence, sequence.num_computed + part.num_tokens);
    stride = std::max(stride, sequence.tables[0].size());
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
      for (size_t g = 0; g < windows_.size(); ++g) {
        arrays.slots[g].push_back(sequence.tables[g][position / runner_.block_size()] * runner_.block_size() +
                                  position % runner_.block_size());
      }
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
    for (size_t g = 0; g < windows_.size(); ++g) {
      arrays.block_tables[g].insert(arrays.block_tables[g].end(), sequence.tables[g].begin(), sequence.tables[g].end());
      arrays.block_tables[g].resize(arrays.context_lens.size() * stride, 0);
    }
    sequence.num_computed = end;
  }

  ForwardBatch batch;
  batch.token_ids = arrays.token_ids;
  batch.positions = arrays.positions;
  batch.slot_mapping = arrays.slots[0];
  batch.cu_q_lens = arrays.cu_q_lens;
  batch.context_lens = arrays.context_lens;
  batch.block_tables = arrays.block_tables[0];
  batch.block_table_stride = static_cast<int64_t>(stride);
  std::vector<GroupTables> more_groups;
  for (size_t g = 1; g < windows_.size(); ++g) {
    more_groups.push_back({arrays.slots[g], arrays.block_tables[g], batch.block_table_stride});
  }
  batch.more_groups = more_groups;
  batch.samples = arrays.samples;
  batch.scores = arrays.scores;
  QUIRE_RETURN_IF_ERROR(runner_.Submit(batch));
  QUIRE_RETURN_IF_ERROR(runner_.Wait(&result_));
  for (const StepPart& part : parts) SlideOut(sequences_[part.sequence]);

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
