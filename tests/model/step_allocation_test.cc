// A step of sizes seen before allocates nothing, on any backend.

#include "gtest/gtest.h"
#include "tests/model/model_test_util.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

TEST(StepAllocationTest, DecodeStepsAllocateNothing) {
  const auto path = RefPath("gguf/tiny_llama_mix.gguf");
  if (!path) GTEST_SKIP() << "no tiny model";
  for (const TestBackend& backend : TestBackends()) {
    SCOPED_TRACE(backend.name);
    const auto runner = MakeRunner(*path, backend.options, {.block_size = 16});
    ASSERT_TRUE(runner.ok()) << runner.status();
    // Two sequences of one token each, sampled, scored and copied in every step, in blocks 1 and 2.
    const std::vector<int32_t> ids = {5, 6}, cu_q_lens = {0, 1, 2}, tables = {1, 2};
    const std::vector<SampleRow> samples = {{.logits_row = 0, .num_logprobs = 5},
                                            {.logits_row = 1, .temperature = 1, .top_p = 0.9f}};
    const std::vector<ScoreRow> scores = {{.logits_row = 1, .target_id = 3}};
    const std::vector<BlockCopyIds> copies = {{1, 3}};
    StepResult result;
    for (int32_t position = 0; position < 12; ++position) {
      const std::vector<int32_t> positions = {position, position}, slots = {16 + position, 32 + position};
      const std::vector<int32_t> context_lens = {position + 1, position + 1};
      ForwardBatch batch;
      batch.token_ids = ids;
      batch.positions = positions;
      batch.slot_mapping = slots;
      batch.cu_q_lens = cu_q_lens;
      batch.context_lens = context_lens;
      batch.block_tables = tables;
      batch.block_table_stride = 1;
      batch.block_copies = copies;
      batch.samples = samples;
      batch.scores = scores;
      const int64_t before = TotalAllocations();
      ASSERT_TRUE((*runner)->Submit(batch).ok());
      ASSERT_TRUE((*runner)->Wait(&result).ok());
      // The first steps size what is kept: two results take turns.
      if (position < 4) continue;
      EXPECT_EQ(TotalAllocations() - before, 0) << "step " << position;
    }
  }
}

TEST(StepAllocationTest, BatchesThatBreakTheContractAreRefused) {
  const auto path = RefPath("gguf/tiny_llama_mix.gguf");
  if (!path) GTEST_SKIP() << "no tiny model";
  const auto runner = MakeRunner(*path, {.kind = DeviceKind::kReference, .num_threads = 1}, {.block_size = 16});
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto message = [&](int32_t id, int32_t position, int32_t slot, int32_t block, int32_t context, int32_t row) {
    const std::vector<int32_t> ids = {id}, positions = {position}, slots = {slot}, cu_q_lens = {0, 1},
                               contexts = {context};
    const std::vector<int32_t> tables = {block};
    const std::vector<SampleRow> samples = {{.logits_row = row}};
    ForwardBatch batch;
    batch.token_ids = ids;
    batch.positions = positions;
    batch.slot_mapping = slots;
    batch.cu_q_lens = cu_q_lens;
    batch.context_lens = contexts;
    batch.block_tables = tables;
    batch.block_table_stride = 1;
    batch.samples = samples;
    const absl::Status status = (*runner)->Submit(batch);
    StepResult result;
    if (status.ok()) {
      EXPECT_TRUE((*runner)->Wait(&result).ok());
    }
    return std::string(status.message());
  };
  EXPECT_EQ(message(5, 0, 16, 1, 1, 0), "");
  EXPECT_NE(message(319, 0, 16, 1, 1, 0).find("token_ids"), std::string::npos);
  EXPECT_NE(message(-1, 0, 16, 1, 1, 0).find("token_ids"), std::string::npos);
  EXPECT_NE(message(5, 1, 16, 1, 1, 0).find("positions"), std::string::npos);
  EXPECT_NE(message(5, 0, 1 << 20, 1, 1, 0).find("slot_mapping"), std::string::npos);
  EXPECT_NE(message(5, 0, 16, 1 << 20, 1, 0).find("block_tables"), std::string::npos);
  EXPECT_NE(message(5, 0, 16, 1, 17, 0).find("context_lens"), std::string::npos);
  EXPECT_NE(message(5, 0, 16, 1, 1, 1).find("samples"), std::string::npos);
}

}  // namespace
}  // namespace quire::testing
