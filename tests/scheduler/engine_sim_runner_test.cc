#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/sim_runner.h"

namespace quire {
namespace {

// One sequence with its blocks, stepped by hand.
struct Row {
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  int32_t computed = 0;
};

std::unique_ptr<ModelRunner> MakeRunner(int32_t block_size, int32_t vocab_size = 1000) {
  SimRunnerOptions options;
  options.config.vocab_size = vocab_size;
  options.num_kv_blocks = 200;
  options.block_size = block_size;
  options.time_scale = 0;
  auto runner = CreateSimRunner(options);
  EXPECT_TRUE(runner.ok()) << runner.status();
  return *std::move(runner);
}

// Computes `count` more tokens of the row and samples after the last. Any row can carry block copies.
absl::StatusOr<StepResult> Step(ModelRunner& runner, Row& row, int32_t count, SampleRow sample = {},
                                std::vector<BlockCopyIds> copies = {}) {
  std::vector<int32_t> positions, slots;
  for (int32_t p = row.computed; p < row.computed + count; ++p) {
    positions.push_back(p);
    slots.push_back(row.blocks[p / runner.block_size()] * runner.block_size() + p % runner.block_size());
  }
  const std::vector<int32_t> cu = {0, count}, context = {row.computed + count};
  sample.logits_row = count - 1;
  ForwardBatch batch;
  batch.token_ids = absl::MakeConstSpan(row.tokens).subspan(row.computed, count);
  batch.positions = positions;
  batch.slot_mapping = slots;
  batch.cu_q_lens = cu;
  batch.context_lens = context;
  batch.block_tables = row.blocks;
  batch.block_table_stride = static_cast<int64_t>(row.blocks.size());
  batch.block_copies = copies;
  batch.samples = absl::MakeConstSpan(&sample, 1);
  StepResult result;
  if (absl::Status status = runner.Submit(batch); !status.ok()) return status;
  if (absl::Status status = runner.Wait(&result); !status.ok()) return status;
  row.computed += count;
  return result;
}

int32_t TokenAfter(ModelRunner& runner, Row row, SampleRow sample = {}) {
  auto result = Step(runner, row, static_cast<int32_t>(row.tokens.size()), sample);
  EXPECT_TRUE(result.ok()) << result.status();
  return result->samples.at(0).token_id;
}

std::vector<int32_t> Tokens(int count, int seed) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 7919 + seed * 104729) % 1000);
  return tokens;
}

std::vector<int32_t> Blocks(int first, int count) {
  std::vector<int32_t> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(first + count - 1 - i);
  return blocks;
}

TEST(SimRunnerTest, ChunkingBlockSizeAndPlacementDoNotMatter) {
  auto whole = MakeRunner(16);
  const int32_t expected = TokenAfter(*whole, {Tokens(50, 1), Blocks(1, 4)});
  auto chunked = MakeRunner(1);
  Row row{Tokens(50, 1), Blocks(100, 50)};
  for (int32_t count : {1, 30, 3, 15}) ASSERT_TRUE(Step(*chunked, row, count).ok());
  ASSERT_TRUE(row.computed == 49);
  auto last = Step(*chunked, row, 1);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->samples[0].token_id, expected);
}

TEST(SimRunnerTest, EveryTokenMatters) {
  auto runner = MakeRunner(8);
  const int32_t expected = TokenAfter(*runner, {Tokens(40, 1), Blocks(1, 5)});
  for (int i = 0; i < 40; ++i) {
    Row row{Tokens(40, 1), Blocks(1, 5)};
    row.tokens[i] += 1;
    EXPECT_NE(TokenAfter(*runner, row), expected) << "token " << i;
  }
}

TEST(SimRunnerTest, AWrongBlockAnywhereInTheTableChangesTheToken) {
  auto runner = MakeRunner(8);
  Row row{Tokens(41, 1), Blocks(1, 6)};
  ASSERT_TRUE(Step(*runner, row, 40).ok());
  Row right = row;
  auto expected = Step(*runner, right, 1);
  for (int i = 0; i < 5; ++i) {
    Row wrong = row;
    wrong.blocks[i] = 50;
    auto result = Step(*runner, wrong, 1);
    ASSERT_TRUE(result.ok());
    EXPECT_NE(result->samples[0].token_id, expected->samples[0].token_id) << "block " << i;
  }
}

TEST(SimRunnerTest, BlockCopiesCarryFingerprints) {
  auto runner = MakeRunner(8);
  Row row{Tokens(21, 1), Blocks(1, 3)};
  ASSERT_TRUE(Step(*runner, row, 20).ok());
  Row copy = row, original = row;
  copy.blocks[2] = 60;
  auto copied = Step(*runner, copy, 1, {}, {{row.blocks[2], 60}});
  auto plain = Step(*runner, original, 1);
  ASSERT_TRUE(copied.ok() && plain.ok());
  EXPECT_EQ(copied->samples[0].token_id, plain->samples[0].token_id);
}

TEST(SimRunnerTest, DrawsDependOnWhatKeysThem) {
  auto runner = MakeRunner(8);
  const Row row{Tokens(20, 1), Blocks(1, 3)};
  const SampleRow base{.temperature = 1, .seed = 5, .sequence_index = 1, .output_position = 2};
  const int32_t token = TokenAfter(*runner, row, base);
  EXPECT_EQ(TokenAfter(*runner, row, base), token);
  int changed = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    SampleRow other = base;
    other.seed = 100 + i;
    changed += TokenAfter(*runner, row, other) != token;
    other = base;
    other.sequence_index = 2 + i;
    changed += TokenAfter(*runner, row, other) != token;
    other = base;
    other.output_position = 3 + i;
    changed += TokenAfter(*runner, row, other) != token;
  }
  EXPECT_GE(changed, 20) << "of 24";
  const int32_t greedy = TokenAfter(*runner, row, {.seed = 1});
  EXPECT_EQ(TokenAfter(*runner, row, {.seed = 2, .sequence_index = 3}), greedy);
}

TEST(SimRunnerTest, BannedIdsAreNeverChosen) {
  auto runner = MakeRunner(8, /*vocab_size=*/5);
  Row row{{0, 1, 2, 3}, Blocks(1, 1)};
  std::vector<int32_t> banned;
  for (int i = 0; i < 4; ++i) {
    const SampleExtras bans{.banned_ids = banned};
    const int32_t token = TokenAfter(*runner, row, {.more = &bans});
    EXPECT_THAT(banned, ::testing::Not(::testing::Contains(token)));
    banned.push_back(token);
  }
  banned = {0, 1, 2, 3, 4};
  const SampleExtras bans{.banned_ids = banned};
  auto none = Step(*runner, row, 4, {.more = &bans});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->samples[0].bad_logits);
}

TEST(SimRunnerTest, LogprobsAreADistribution) {
  auto runner = MakeRunner(8);
  Row row{Tokens(20, 1), Blocks(1, 3)};
  auto result = Step(*runner, row, 20, {.temperature = 1, .seed = 3, .num_logprobs = -1});
  ASSERT_TRUE(result.ok());
  const SampledToken& token = result->samples[0];
  ASSERT_EQ(token.logprobs_count, 1001);
  double sum = 0;
  for (int i = 1; i <= 1000; ++i) {
    sum += std::exp(result->logprobs[i].logprob);
    if (i > 1) {
      EXPECT_LT(result->logprobs[i].logprob, result->logprobs[i - 1].logprob);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-4);
  EXPECT_EQ(result->logprobs[0].token_id, token.token_id);
  EXPECT_EQ(result->logprobs[token.rank].token_id, token.token_id);
}

TEST(SimRunnerTest, RefusesBrokenBatches) {
  auto runner = MakeRunner(8);
  Row row{Tokens(20, 1), {1, 2, 200}};  // no such block
  EXPECT_EQ(Step(*runner, row, 20).status().code(), absl::StatusCode::kInvalidArgument);
  row.blocks = {1, 2, 0};  // the null block
  EXPECT_EQ(Step(*runner, row, 20).status().code(), absl::StatusCode::kInvalidArgument);
  row.blocks = {1, 2, 3};
  EXPECT_EQ(Step(*runner, row, 20, {}, {{0, 3}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Step(*runner, row, 20).ok());
}

TEST(SimRunnerTest, RefusesOptionsOutOfRange) {
  SimRunnerOptions options;
  options.config.vocab_size = 10;
  options.num_kv_blocks = 2;
  options.block_size = 1;
  EXPECT_TRUE(CreateSimRunner(options).ok());
  options.num_kv_blocks = 1;
  EXPECT_EQ(CreateSimRunner(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.num_kv_blocks = 2;
  options.time_scale = -1;
  EXPECT_EQ(CreateSimRunner(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
