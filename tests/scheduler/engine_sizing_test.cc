#include "scheduler/engine_sizing.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 100;
  config.max_position_embeddings = 2048;
  return config;
}

// The message, after checking that options that cannot work are told apart by their code.
std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(ValidateEngineOptionsTest, AcceptsDefaults) { EXPECT_TRUE(ValidateEngineOptions(EngineOptions()).ok()); }

TEST(ValidateEngineOptionsTest, NamesOptionValueAndLimit) {
  EngineOptions options;
  options.block_size = 24;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)),
              AllOf(HasSubstr("--block-size 24"), HasSubstr("1, 8, 16, 32, 64")));
  options = {};
  options.scheduler.max_num_seqs = 0;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--max-num-seqs 0 is outside 1 .. 65536"));
  options = {};
  options.scheduler.max_num_batched_tokens = (1 << 20) + 1;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--max-num-batched-tokens 1048577"));
  options = {};
  options.num_output_shards = 17;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("17"));
  options = {};
  options.sim_time_scale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--sim-time-scale"));
  options = {};
  options.step_timeout = absl::ZeroDuration();
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--step-timeout"));
  options = {};
  options.scheduler.preemption = PreemptionMode::kSwap;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--preemption swap needs --host-kv-memory above 0"));
  options.host_kv_bytes = -1;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--host-kv-memory -1"));
  options = {};
  options.max_queued_tokens = 0;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--max-queued-tokens 0"));
}

TEST(SizeEngineTest, TheHostTierHoldsWhatItsBytesDo) {
  EngineOptions options;
  EXPECT_EQ(SizeEngine(options, Config(), 1024, 2 * kGiB)->num_host_blocks, 0);
  options.host_kv_bytes = 1 << 20;  // blocks of 32 KiB
  EXPECT_EQ(SizeEngine(options, Config(), 1024, 2 * kGiB)->num_host_blocks, 32);
  options.host_kv_bytes = 1000;
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, 2 * kGiB).status()),
              HasSubstr("--host-kv-memory 1000 holds no block"));
  options.host_kv_bytes = 3 * kGiB;
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, 2 * kGiB).status()), HasSubstr("is above"));
  options.host_kv_bytes = 1 << 20;
  EXPECT_EQ(SizeEngine(options, Config(), 1024, 2 * kGiB, {0, 24})->num_host_blocks, 32) << "of the layers of a group";
  // Memory of a device and of its host.
  options.num_kv_blocks = 4;
  options.host_kv_bytes = 3 * kGiB;
  EXPECT_EQ(SizeEngine(options, Config(), 1024, kGiB, {0}, 4 * kGiB)->num_host_blocks, 3 * kGiB / 32768);
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, 4 * kGiB, {0}, kGiB).status()),
              HasSubstr("--host-kv-memory 3221225472 is above the 1073741824 bytes"));
}

TEST(SizeEngineTest, DefaultPoolIsAQuarterOfMemoryAndAtMostFourGiB) {
  // 1 KiB a token, 32 KiB a block.
  auto small = SizeEngine(EngineOptions(), Config(), 1024, 2 * kGiB);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->block_size, 32);
  EXPECT_EQ(small->num_kv_blocks, kGiB / 2 / 32768);
  EXPECT_EQ(small->max_model_len, 2048);
  auto large = SizeEngine(EngineOptions(), Config(), 1024, 64 * kGiB);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->num_kv_blocks, 4 * kGiB / 32768);
}

TEST(SizeEngineTest, DefaultPoolStaysBelowTheSlotLimit) {
  auto sizes = SizeEngine(EngineOptions(), Config(), 1, 64 * kGiB);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_LE((int64_t{sizes->num_kv_blocks} + 1) * sizes->block_size, std::numeric_limits<int32_t>::max());
}

TEST(SizeEngineTest, BlocksWinOverBytes) {
  EngineOptions options;
  options.kv_cache_bytes = kGiB;
  options.num_kv_blocks = 7;
  options.block_size = 16;
  auto sizes = SizeEngine(options, Config(), 1024, kGiB);
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes->num_kv_blocks, 7);
  EXPECT_EQ(sizes->max_model_len, 112) << "cut to what the pool holds";
}

TEST(SizeEngineTest, B046_B032_AContextAboveTheModelsIsTheModels) {
  EngineOptions options;
  options.max_model_len = 4096;
  const auto sizes = SizeEngine(options, Config(), 1024, kGiB);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(sizes->max_model_len, 2048);
}

TEST(SizeEngineTest, RefusesWhatCannotWork) {
  EngineOptions options;
  options.kv_cache_bytes = 32767;
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, kGiB).status()),
              AllOf(HasSubstr("--kv-cache-memory 32767"), HasSubstr("32768 bytes")));
  options = {};
  options.max_model_len = 65;
  options.num_kv_blocks = 2;
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, kGiB).status()),
              AllOf(HasSubstr("--max-model-len 65"), HasSubstr("64 tokens")));
  options = {};
  options.num_kv_blocks = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, kGiB).status()), HasSubstr("--kv-blocks"));
}

TEST(SizeEngineTest, APoolFitsIntoTheMemory) {
  EngineOptions options;
  options.kv_cache_bytes = kGiB;
  EXPECT_TRUE(SizeEngine(options, Config(), 1024, kGiB).ok());
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, kGiB - 1).status()),
              AllOf(HasSubstr("--kv-cache-memory 1073741824"), HasSubstr("1073741823 bytes")));
  options = {};
  options.num_kv_blocks = 32768;
  EXPECT_TRUE(SizeEngine(options, Config(), 1024, kGiB).ok());
  EXPECT_THAT(Refusal(SizeEngine(options, Config(), 1024, kGiB - 1).status()),
              AllOf(HasSubstr("--kv-blocks 32768"), HasSubstr("1073741823 bytes")));
}

TEST(SizeEngineTest, AFractionIsThatOfTheMemory) {
  EngineOptions options;
  options.memory_fraction = 0.75;
  auto sizes = SizeEngine(options, Config(), 1024, 8 * kGiB);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(sizes->num_kv_blocks, 6 * kGiB / 32768);
  options.memory_fraction = 0.96;
  EXPECT_THAT(Refusal(ValidateEngineOptions(options)), HasSubstr("--memory-fraction 0.96"));
}

}  // namespace
}  // namespace quire
