#include "scheduler/batch_builder.h"

#include <algorithm>
#include <cstdint>
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

// Builds every plan of a run with one builder, and checks it.
class BuiltSteps {
 public:
  explicit BuiltSteps(SchedulerHarness* h) : h_(*h), builder_(h->options.block_size, h->options.max_model_len) {}

  void Step() {
    ASSERT_TRUE(h_.Schedule());
    ExpectBatchOf(h_.plan, h_.options.block_size, builder_.Build(h_.plan));
    rows_.resize(std::min(rows_.size(), h_.plan.sequences.size()));  // those behind are forgotten
    for (size_t s = 0; s < rows_.size(); ++s) CountReplaced(*h_.plan.sequences[s].sequence, rows_[s]);
    rows_.clear();
    for (const ScheduledSequence& entry : h_.plan.sequences) {
      const absl::Span<const BlockId> blocks = entry.sequence->table.blocks();
      rows_.push_back({entry.sequence, {blocks.begin(), blocks.end()}});
    }
    h_.Commit();
  }
  void RunAll() {
    for (int step = 0; step < 1000 && h_.scheduler.HasWork() && !::testing::Test::HasFailure(); ++step) Step();
    EXPECT_FALSE(h_.scheduler.HasWork());
  }

  // Rows that are of the same sequence as in the batch before, while other blocks stand where it had some.
  int num_replaced() const { return num_replaced_; }

 private:
  struct Row {
    const Sequence* sequence = nullptr;
    std::vector<BlockId> blocks;
  };

  void CountReplaced(const Sequence& sequence, const Row& before) {
    const absl::Span<const BlockId> blocks = sequence.table.blocks();
    const size_t both = std::min(blocks.size(), before.blocks.size());
    num_replaced_ +=
        before.sequence == &sequence && blocks.first(both) != absl::MakeConstSpan(before.blocks).first(both);
  }

  SchedulerHarness& h_;
  BatchBuilder builder_;
  std::vector<Row> rows_;
  int num_replaced_ = 0;
};

// Stopped and started again between two batches: on the host and back, or computed anew. The other sequence, in the row
// before, has taken one of its blocks meanwhile.
TEST(BatchBuilderTest, ARowFollowsItsSequenceThroughPreemption) {
  for (const PreemptionMode mode : {PreemptionMode::kSwap, PreemptionMode::kRecompute}) {
    SCOPED_TRACE(mode == PreemptionMode::kSwap ? "swap" : "recompute");
    SchedulerHarness h({.num_blocks = 1 + 20, .prefix_caching = false, .num_host_blocks = 20, .preemption = mode});
    BuiltSteps steps(&h);
    const uint64_t first = h.Add(Ids(15, 1), Tokens(20)), second = h.Add(Ids(20, 2), Tokens(20));
    steps.Step();
    steps.Step();  // the first has filled two blocks
    h.scheduler.SetHeld(second, true);
    h.scheduler.SetHeld(second, false);
    steps.Step();
    EXPECT_EQ(steps.num_replaced(), 1);
    steps.RunAll();
    EXPECT_EQ(h.scheduler.stats().preemptions, 1);
    EXPECT_EQ(h.scheduler.stats().swaps, mode == PreemptionMode::kSwap ? 1 : 0);
    h.ExpectCorrect(first);
    h.ExpectCorrect(second);
  }
}

// Those that find no room come back into rows that others had.
TEST(BatchBuilderTest, RowsChangeHandsInACrowdedPool) {
  for (const PreemptionMode mode : {PreemptionMode::kSwap, PreemptionMode::kRecompute}) {
    SCOPED_TRACE(mode == PreemptionMode::kSwap ? "swap" : "recompute");
    SchedulerHarness h({.num_blocks = 1 + 12, .num_host_blocks = 32, .preemption = mode});
    BuiltSteps steps(&h);
    std::vector<uint64_t> handles;
    for (int32_t i = 0; i < 4; ++i) handles.push_back(h.Add(Ids(20, i), Tokens(30 - 5 * (i % 2))));
    steps.RunAll();
    EXPECT_GE(h.scheduler.stats().preemptions, 2);
    EXPECT_EQ(h.scheduler.stats().swaps > 0, mode == PreemptionMode::kSwap);
    for (const uint64_t handle : handles) h.ExpectCorrect(handle);
  }
}

// Whoever writes first to the part-filled block of a prompt gets a copy of it.
TEST(BatchBuilderTest, ARowFollowsACopyOfASharedBlock) {
  SchedulerHarness h({});
  BuiltSteps steps(&h);
  const uint64_t handle = h.Add(Ids(20), Tokens(10, 3));
  steps.RunAll();
  EXPECT_GE(steps.num_replaced(), 1);
  h.ExpectCorrect(handle);
}

// A beam that ends gives its place, and its row, to the fork of another.
TEST(BatchBuilderTest, ARowFollowsBeamsThatReplaceEachOther) {
  SchedulerHarness h({});
  BuiltSteps steps(&h);
  SamplingParams params = Tokens(40);
  params.beam_width = 4;
  params.temperature = 0;
  const uint64_t handle = h.Add(Ids(20), params);
  steps.RunAll();
  EXPECT_GE(steps.num_replaced(), 10);
  h.ExpectCorrect(handle);
}

}  // namespace
}  // namespace quire
