// Models whose layers have different windows, through the whole engine: caching, chunks, preemption, small pools and
// block sizes change no token, and what a sequence holds within a window does not grow with it.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/factory.h"
#include "model/sim_runner.h"
#include "model/transformer_runner.h"
#include "scheduler/engine_with_runner.h"
#include "tests/integration/row_independence.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/late_runner.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

struct Variant {
  std::string name;
  int32_t block_size = 16;
  int32_t pool_blocks = 0;  // 0: as many as are ever needed
  int32_t max_num_batched_tokens = 2048;
  bool caching = false;
  bool one_at_a_time = false;
  bool late = false;  // the runner answers one step late
};

const Variant kAlone = {.name = "alone", .one_at_a_time = true};

std::vector<Variant> Variants(int32_t small_pool) {
  return {
      {.name = "all at once"},
      {.name = "64 tokens a step", .max_num_batched_tokens = 64},
      {.name = "cached, one at a time", .caching = true, .one_at_a_time = true},
      {.name = "cached, all at once", .caching = true},
      {.name = "small pool", .pool_blocks = small_pool},
      {.name = "small pool, cached", .pool_blocks = small_pool, .caching = true},
      {.name = "small pool, cached, 40 tokens a step",
       .pool_blocks = small_pool,
       .max_num_batched_tokens = 40,
       .caching = true},
      {.name = "small pool, cached, one step late", .pool_blocks = small_pool, .caching = true, .late = true},
      {.name = "40 tokens a step, one step late", .max_num_batched_tokens = 40, .late = true},
      {.name = "blocks of 1, cached", .block_size = 1, .caching = true},
      {.name = "blocks of 8, cached, small pool", .block_size = 8, .pool_blocks = 2 * small_pool, .caching = true},
      {.name = "blocks of 32, cached, 50 tokens a step",
       .block_size = 32,
       .max_num_batched_tokens = 50,
       .caching = true},
  };
}

// No table of a group with a window names more blocks than the rows of the step can see.
absl::Status CheckHeld(const ForwardBatch& batch, const std::vector<int32_t>& windows, int32_t block_size) {
  if (batch.num_groups() != static_cast<int32_t>(windows.size())) return absl::InternalError("groups are missing");
  for (int32_t g = 0; g < batch.num_groups(); ++g) {
    const GroupTables group = batch.group(g);
    for (size_t s = 0; windows[g] > 0 && s < batch.context_lens.size(); ++s) {
      const auto table = group.block_tables.subspan(s * group.block_table_stride, group.block_table_stride);
      const auto held = static_cast<int64_t>(table.size()) - std::count(table.begin(), table.end(), 0);
      const int32_t rows = batch.cu_q_lens[s + 1] - batch.cu_q_lens[s];
      if (held > (windows[g] + rows - 1 + block_size - 1) / block_size + 2) {
        return absl::InternalError(absl::StrCat("sequence ", s, " holds ", held, " blocks for ", rows, " rows"));
      }
    }
  }
  return absl::OkStatus();
}

using RunnerFactory = std::function<std::unique_ptr<ModelRunner>(int32_t num_blocks, int32_t block_size)>;

WorkloadResult RunVariant(const RunnerFactory& make_runner, const ModelConfig& config,
                          const std::vector<WorkloadRequest>& workload, int32_t max_model_len, const Variant& variant) {
  SCOPED_TRACE(variant.name);
  const int32_t pool = variant.pool_blocks > 0 ? variant.pool_blocks : (1 << 18) / variant.block_size;
  std::unique_ptr<ModelRunner> runner = make_runner(1 + pool, variant.block_size);
  const std::vector<int32_t> windows = runner->group_windows();
  RunnerHooks hooks;
  hooks.before_step = [windows, variant](int64_t, const ForwardBatch& batch) {
    // What a step in flight sees is held too.
    return variant.late ? absl::OkStatus() : CheckHeld(batch, windows, variant.block_size);
  };
  EngineOptions options;
  options.max_model_len = max_model_len;
  options.max_queued_requests = static_cast<int32_t>(workload.size());
  options.max_queued_tokens = int64_t{1} << 30;
  options.scheduler.max_num_seqs = 64;
  options.scheduler.max_num_batched_tokens = variant.max_num_batched_tokens;
  options.scheduler.enable_prefix_caching = variant.caching;
  runner = std::make_unique<HookedRunner>(std::move(runner), std::move(hooks));
  if (variant.late) runner = std::make_unique<LateRunner>(std::move(runner));
  auto engine = CreateEngineWithRunner(options, config, std::move(runner));
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  WorkloadResult result = RunWorkload(**engine, workload, variant.one_at_a_time);
  std::printf("  %-40s %d steps, %d preemptions, %d tokens from the cache, %d evictions\n", variant.name.c_str(),
              static_cast<int>(result.stats.steps), static_cast<int>(result.stats.preemptions),
              static_cast<int>(result.stats.prefix_hit_tokens), static_cast<int>(result.stats.evictions));
  return result;
}

void ExpectSameIdsInEveryVariant(const RunnerFactory& make_runner, const ModelConfig& config,
                                 const std::vector<WorkloadRequest>& workload, int32_t max_model_len,
                                 int32_t small_pool) {
  const WorkloadResult alone = RunVariant(make_runner, config, workload, max_model_len, kAlone);
  for (const Variant& variant : Variants(small_pool)) {
    const WorkloadResult result = RunVariant(make_runner, config, workload, max_model_len, variant);
    ExpectSameIds(alone, result, variant.name);
    if (variant.name == "small pool") {
      EXPECT_GT(result.stats.preemptions, 0);
    }
    if (variant.name == "cached, one at a time") {
      // With room for everything nothing that slid out is lost, so every token is found that one table would find.
      EXPECT_GT(result.stats.prefix_hit_tokens, 0);
      EXPECT_EQ(result.stats.evictions, 0);
      EXPECT_EQ(result.cached_tokens, ExpectedCachedTokens(workload, result));
    }
  }
}

struct SimCase {
  std::vector<int32_t> windows;
  int32_t small_pool;  // blocks of 16
};

class LayerGroupsSimTest : public ::testing::TestWithParam<SimCase> {};

TEST_P(LayerGroupsSimTest, SameIdsInEveryVariant) {
  constexpr int32_t kVocabSize = 32000;
  const auto workload =
      MakeWorkload({.num_requests = kSanitized ? 40 : 120, .vocab_size = kVocabSize, .max_prompt = 600});
  ModelConfig config;
  config.vocab_size = kVocabSize;
  config.max_position_embeddings = 1024;
  const auto make_runner = [&](int32_t num_blocks, int32_t block_size) {
    auto runner = CreateSimRunner({.config = config,
                                   .num_kv_blocks = num_blocks,
                                   .block_size = block_size,
                                   .group_windows = GetParam().windows,
                                   .time_scale = 0});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  };
  ExpectSameIdsInEveryVariant(make_runner, config, workload, /*max_model_len=*/768, GetParam().small_pool);
}

INSTANTIATE_TEST_SUITE_P(Windows, LayerGroupsSimTest,
                         ::testing::Values(SimCase{{0, 100}, 220}, SimCase{{100}, 60}, SimCase{{0, 24, 24, 200}, 300},
                                           SimCase{{1}, 12}),
                         [](const auto& test) { return absl::StrCat("w", absl::StrJoin(test.param.windows, "_")); });

// A model of six layers, every second of which sees 24 keys; weights are random.
std::string HybridModel() {
  std::string folder = ::testing::TempDir() + "/quire_layer_groups_XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/config.json") << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "sliding_window": 24, "layer_types": ["sliding_attention",
    "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";
  return folder;
}

void ExpectSameIdsOfModel(const std::string& path, bool random_weights, DeviceKind device, size_t num_groups,
                          int32_t small_pool) {
  const auto config = LoadModelConfig(path);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto workload = MakeWorkload(
      {.num_requests = kSanitized ? 12 : 20, .vocab_size = config->vocab_size, .max_prompt = 300, .max_output = 32});
  const auto make_runner = [&](int32_t num_blocks, int32_t block_size) {
    TransformerRunnerOptions options;
    options.model_path = path;
    options.backend = *CreateBackend({.kind = device, .num_threads = 1});
    options.block_size = block_size;
    options.num_kv_blocks = std::min(num_blocks, 32768 / block_size);
    options.group_layers = true;
    options.random_weights = random_weights;
    auto runner = CreateTransformerRunner(std::move(options));
    EXPECT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ((*runner)->group_windows().size(), num_groups);
    return *std::move(runner);
  };
  ExpectSameIdsInEveryVariant(make_runner, *config, workload, /*max_model_len=*/400, small_pool);
}

std::vector<DeviceKind> Devices() {
  if (kSanitized) return {DeviceKind::kCpu};
  return {DeviceKind::kReference, DeviceKind::kCpu};
}

class LayerGroupsModelTest : public ::testing::TestWithParam<DeviceKind> {};

TEST_P(LayerGroupsModelTest, HybridGivesTheSameIdsInEveryVariant) {
  const std::string path = HybridModel();
  ExpectSameIdsOfModel(path, /*random_weights=*/true, GetParam(), 2, /*small_pool=*/120);
  std::filesystem::remove_all(path);
}

TEST_P(LayerGroupsModelTest, MistralGivesTheSameIdsInEveryVariant) {
  const auto path = RefPath("tiny/mistral");
  if (!path) GTEST_SKIP() << "no oracle data: tiny/mistral";
  ExpectSameIdsOfModel(*path, /*random_weights=*/false, GetParam(), 1, /*small_pool=*/24);
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerGroupsModelTest, ::testing::ValuesIn(Devices()),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace quire::testing
