#include "scheduler/batch_builder.h"

#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

// Every array of a batch, entry by entry, from the plan and the tables it was made of.
void ExpectBatchOf(const SchedulePlan& plan, int32_t block_size, const ForwardBatch& batch) {
  const size_t num_sequences = plan.sequences.size();
  ASSERT_EQ(batch.context_lens.size(), num_sequences);
  ASSERT_EQ(batch.cu_q_lens.size(), num_sequences + 1);
  ASSERT_EQ(batch.token_ids.size(), plan.num_tokens);
  ASSERT_EQ(batch.positions.size(), plan.num_tokens);
  ASSERT_EQ(batch.slot_mapping.size(), plan.num_tokens);
  ASSERT_EQ(batch.block_tables.size(), num_sequences * batch.block_table_stride);
  EXPECT_EQ(batch.cu_q_lens[0], 0);
  for (size_t s = 0; s < num_sequences; ++s) {
    const ScheduledSequence& entry = plan.sequences[s];
    const int32_t context = entry.start + entry.num_tokens;
    EXPECT_EQ(batch.context_lens[s], context);
    EXPECT_EQ(batch.cu_q_lens[s], entry.first_row);
    EXPECT_EQ(batch.cu_q_lens[s + 1], entry.first_row + entry.num_tokens);
    const absl::Span<const BlockId> blocks = entry.sequence->table.blocks();
    for (int32_t position = entry.start; position < context; ++position) {
      const int32_t row = entry.first_row + position - entry.start;
      EXPECT_EQ(batch.positions[row], position);
      EXPECT_EQ(batch.token_ids[row], entry.token_from_sample >= 0 ? 0 : entry.sequence->tokens[position]);
      const auto block = static_cast<int32_t>(blocks[position / block_size]);
      EXPECT_EQ(batch.slot_mapping[row], block * block_size + position % block_size);
    }
    const auto table = batch.block_tables.subspan(s * batch.block_table_stride, batch.block_table_stride);
    for (int32_t i = 0; i < batch.block_table_stride; ++i) {
      EXPECT_EQ(table[i], i * block_size < context ? static_cast<int32_t>(blocks[i]) : 0) << "entry " << i;
    }
  }
  std::vector<TokenFromSample> late;
  for (const ScheduledSequence& entry : plan.sequences) {
    if (entry.token_from_sample >= 0) late.push_back({entry.first_row, entry.token_from_sample});
  }
  ASSERT_EQ(batch.tokens_from_samples.size(), late.size());
  for (size_t i = 0; i < late.size(); ++i) {
    EXPECT_EQ(batch.tokens_from_samples[i].row, late[i].row);
    EXPECT_EQ(batch.tokens_from_samples[i].sample, late[i].sample);
  }
  ASSERT_EQ(batch.block_copies.size(), plan.copies.size());
  for (size_t i = 0; i < plan.copies.size(); ++i) {
    EXPECT_EQ(batch.block_copies[i].src, static_cast<int32_t>(plan.copies[i].src));
    EXPECT_EQ(batch.block_copies[i].dst, static_cast<int32_t>(plan.copies[i].dst));
  }
  EXPECT_EQ(batch.samples.data(), plan.samples.data());
  EXPECT_EQ(batch.scores.data(), plan.scores.data());
}

// One builder over many steps, whose sequences come, grow, are preempted and go: nothing of an earlier batch is left,
// though rows stay where they still hold.
void BuildUnderRandomLoads(int32_t block_size, int32_t max_plans_in_flight) {
  std::mt19937 random(1);
  SchedulerHarness h({.num_blocks = 1 + 240 / block_size,
                      .block_size = block_size,
                      .max_num_batched_tokens = 48,
                      .max_plans_in_flight = max_plans_in_flight});
  BatchBuilder builder(block_size, h.options.max_model_len);
  int num_batches = 0, num_copies = 0;
  size_t num_late_tokens = 0;
  for (int step = 0; step < 400; ++step) {
    if (random() % 4 == 0) {
      SamplingParams params;
      params.max_tokens = static_cast<int64_t>(1 + random() % 60);
      params.n = static_cast<int32_t>(1 + random() % 2);
      std::vector<int32_t> prompt(1 + random() % 60);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 3);
      h.Add(std::move(prompt), params);
    }
    const bool made = h.Schedule();
    if (made) {
      const ForwardBatch& batch = builder.Build(h.plan);
      ExpectBatchOf(h.plan, block_size, batch);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step << ", blocks of " << block_size;
      num_copies += static_cast<int>(h.plan.copies.size());
      num_late_tokens += batch.tokens_from_samples.size();
      ++num_batches;
    }
    if (h.scheduler.num_in_flight() > 0 && !(made && h.MaySchedule())) h.Commit();
  }
  EXPECT_GT(num_batches, 200);
  EXPECT_GT(h.scheduler.stats().preemptions, 0);
  EXPECT_EQ(num_late_tokens > 0, max_plans_in_flight > 1);
  if (block_size > 1) {
    EXPECT_GT(num_copies, 0);
  }
}

TEST(BatchBuilderTest, BuildsEveryEntryAnewUnderRandomLoads) {
  for (const int32_t block_size : {1, 4, 16}) {
    for (const int32_t max_plans_in_flight : {1, 2}) BuildUnderRandomLoads(block_size, max_plans_in_flight);
  }
}

}  // namespace
}  // namespace quire
