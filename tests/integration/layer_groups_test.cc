// Models whose layers have different windows, through the whole engine: caching, chunks, preemption, small pools, block
// sizes, forks and beams change no token, and what a sequence holds within a window does not grow with it.

#include <algorithm>
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
#include "tests/integration/hybrid_model.h"
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
  bool late = false;       // the runner answers one step late
  bool integrity = false;  // checksums of what can be found, poison in what is free
  int32_t max_num_seqs = 64;
  int32_t host_blocks = 0;  // of the host tier
  PreemptionMode preemption = PreemptionMode::kAuto;
};

// Nothing is shared: the sequences of a request, and beams, run one after the other.
const Variant kAlone = {.name = "alone", .one_at_a_time = true, .max_num_seqs = 1};

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
      {.name = "small pool, cached, with integrity", .pool_blocks = small_pool, .caching = true, .integrity = true},
      {.name = "small pool, swap",
       .pool_blocks = small_pool,
       .host_blocks = 40 * small_pool,
       .preemption = PreemptionMode::kSwap},
      {.name = "small pool, cached, swap, with integrity",
       .pool_blocks = small_pool,
       .caching = true,
       .integrity = true,
       .host_blocks = 4 * small_pool,
       .preemption = PreemptionMode::kSwap},
      {.name = "small pool, cached, recompute, host tier",
       .pool_blocks = small_pool,
       .caching = true,
       .host_blocks = 2 * small_pool,
       .preemption = PreemptionMode::kRecompute},
      {.name = "small pool, cached, host tier, late",
       .pool_blocks = small_pool,
       .max_num_batched_tokens = 100,
       .caching = true,
       .late = true,
       .host_blocks = small_pool / 2},
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

using RunnerFactory =
    std::function<std::unique_ptr<ModelRunner>(int32_t num_blocks, int32_t block_size, int32_t host_blocks)>;

WorkloadResult RunVariant(const RunnerFactory& make_runner, const ModelConfig& config,
                          const std::vector<WorkloadRequest>& workload, int32_t max_model_len, const Variant& variant) {
  SCOPED_TRACE(variant.name);
  const int32_t pool = variant.pool_blocks > 0 ? variant.pool_blocks : (1 << 18) / variant.block_size;
  std::unique_ptr<ModelRunner> runner = make_runner(1 + pool, variant.block_size, variant.host_blocks);
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
  options.scheduler.max_num_seqs = variant.max_num_seqs;
  options.kv_integrity = variant.integrity;
  options.scheduler.max_num_batched_tokens = variant.max_num_batched_tokens;
  options.scheduler.enable_prefix_caching = variant.caching;
  options.scheduler.preemption = variant.preemption;
  runner = std::make_unique<HookedRunner>(std::move(runner), std::move(hooks));
  if (variant.late) runner = std::make_unique<LateRunner>(std::move(runner));
  auto engine = CreateEngineWithRunner(options, config, std::move(runner));
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  WorkloadResult result = RunWorkload(**engine, workload, variant.one_at_a_time);
  const EngineStats& stats = result.stats;
  std::printf("  %-40s %d steps, %d preemptions, %d swaps, %d tokens from the cache, %d evictions, %d bytes back\n",
              variant.name.c_str(), static_cast<int>(stats.steps), static_cast<int>(stats.preemptions),
              static_cast<int>(stats.swaps), static_cast<int>(stats.prefix_hit_tokens),
              static_cast<int>(stats.evictions), static_cast<int>(stats.host_bytes_in));
  return result;
}

void ExpectSameIdsInEveryVariant(const RunnerFactory& make_runner, const ModelConfig& config,
                                 const std::vector<WorkloadRequest>& workload, int32_t max_model_len,
                                 int32_t small_pool) {
  const WorkloadResult alone = RunVariant(make_runner, config, workload, max_model_len, kAlone);
  for (const Variant& variant : Variants(small_pool)) {
    const WorkloadResult result = RunVariant(make_runner, config, workload, max_model_len, variant);
    ExpectSameIds(alone, result, variant.name);
    if (variant.pool_blocks > 0 && !variant.caching) {
      EXPECT_GT(result.stats.preemptions, 0);
    }
    if (variant.preemption == PreemptionMode::kSwap) {
      EXPECT_EQ(result.stats.swaps, result.stats.preemptions);
      EXPECT_GT(result.stats.host_bytes_in, 0);
    } else if (variant.preemption == PreemptionMode::kRecompute) {
      EXPECT_EQ(result.stats.swaps, 0);
    }
    if (variant.name == "cached, one at a time") {
      // With room for everything nothing that slid out is lost, so every token is found that one table would find.
      EXPECT_GT(result.stats.prefix_hit_tokens, 0);
      EXPECT_EQ(result.stats.evictions, 0);
      EXPECT_EQ(result.cached_tokens, ExpectedCachedTokens(workload, result, variant.block_size));
    }
  }
}

// Requests of several sequences, every third a beam search; then some that are forked from within each of their
// sequences. So many tokens a step that those run when these start.
std::vector<WorkloadRequest> Branching(const RunnerFactory& make_runner, const ModelConfig& config,
                                       int32_t max_model_len) {
  constexpr int32_t kForkedBehind = 4;
  auto workload = MakeWorkload(
      {.num_requests = 9, .vocab_size = config.vocab_size, .max_prompt = 120, .min_output = 16, .max_output = 24});
  for (size_t i = 0; i < workload.size(); i += 3) workload[i].params.beam_width = workload[i].params.n + 2;
  const WorkloadResult alone = RunVariant(make_runner, config, workload, max_model_len, kAlone);
  for (size_t i = 0; i < alone.ids.size(); ++i) {
    for (size_t s = 0; s < alone.ids[i].size(); ++s) {
      WorkloadRequest fork = workload[i];
      fork.prompt.insert(fork.prompt.end(), alone.ids[i][s].begin(), alone.ids[i][s].begin() + kForkedBehind);
      fork.prompt.push_back(static_cast<int32_t>(s));
      fork.params.max_tokens = 12;
      fork.fork_of = {.handle = i + 1, .sequence_index = static_cast<int32_t>(s)};
      workload.push_back(std::move(fork));
    }
  }
  return workload;
}

void ExpectSameIdsOfBranches(const RunnerFactory& make_runner, const ModelConfig& config, int32_t small_pool) {
  constexpr int32_t kMaxModelLen = 200;
  const std::vector<WorkloadRequest> workload = Branching(make_runner, config, kMaxModelLen);
  const WorkloadResult alone = RunVariant(make_runner, config, workload, kMaxModelLen, kAlone);
  for (const bool cached_and_late : {false, true}) {
    for (const int32_t pool : {0, small_pool}) {
      const Variant variant = {.name = absl::StrCat("branches", cached_and_late ? ", cached, one step late" : "",
                                                    pool > 0 ? ", small pool" : ""),
                               .pool_blocks = pool,
                               .max_num_batched_tokens = 100,
                               .caching = cached_and_late,
                               .late = cached_and_late,
                               .integrity = cached_and_late};
      const WorkloadResult result = RunVariant(make_runner, config, workload, kMaxModelLen, variant);
      ExpectSameIds(alone, result, variant.name);
      if (pool > 0) {
        EXPECT_GT(result.stats.preemptions, 0);
      } else if (!cached_and_late) {
        const auto forked = std::count_if(result.cached_tokens.begin(), result.cached_tokens.end(),
                                          [](int32_t tokens) { return tokens > 0; });
        EXPECT_GE(forked, 3) << "nothing but a fork gives any";
      }
    }
  }
}

struct SimCase {
  std::vector<int32_t> windows;
  int32_t small_pool;  // blocks of 16
};

class LayerGroupsSimTest : public ::testing::TestWithParam<SimCase> {};

constexpr int32_t kSimVocabSize = 32000;

ModelConfig SimConfig() {
  ModelConfig config;
  config.vocab_size = kSimVocabSize;
  config.num_layers = 4, config.num_kv_heads = 1, config.head_dim = 8;
  config.max_position_embeddings = 1024;
  return config;
}

RunnerFactory SimRunners(const std::vector<int32_t>& windows) {
  return [windows](int32_t num_blocks, int32_t block_size, int32_t host_blocks) {
    auto runner = CreateSimRunner({.config = SimConfig(),
                                   .num_kv_blocks = num_blocks,
                                   .block_size = block_size,
                                   .num_host_blocks = host_blocks,
                                   .group_windows = windows,
                                   .time_scale = 0});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  };
}

TEST_P(LayerGroupsSimTest, SameIdsInEveryVariant) {
  const auto workload =
      MakeWorkload({.num_requests = kSanitized ? 40 : 120, .vocab_size = kSimVocabSize, .max_prompt = 600});
  ExpectSameIdsInEveryVariant(SimRunners(GetParam().windows), SimConfig(), workload, /*max_model_len=*/768,
                              GetParam().small_pool);
}

TEST_P(LayerGroupsSimTest, ForksAndBeamsGiveTheSameIds) {
  ExpectSameIdsOfBranches(SimRunners(GetParam().windows), SimConfig(), GetParam().small_pool / 3);
}

INSTANTIATE_TEST_SUITE_P(Windows, LayerGroupsSimTest,
                         ::testing::Values(SimCase{{0, 100}, 220}, SimCase{{100}, 60}, SimCase{{0, 24, 24, 200}, 300},
                                           SimCase{{1}, 12}),
                         [](const auto& test) { return absl::StrCat("w", absl::StrJoin(test.param.windows, "_")); });

struct ModelCase {
  std::string path;
  bool random_weights = false;
  size_t num_groups = 1;
  int32_t small_pool = 0;
};

RunnerFactory ModelRunners(const ModelCase& model, DeviceKind device) {
  return [model, device](int32_t num_blocks, int32_t block_size, int32_t host_blocks) {
    TransformerRunnerOptions options;
    options.model_path = model.path;
    options.backend = *CreateBackend({.kind = device, .num_threads = 1});
    options.block_size = block_size;
    options.num_kv_blocks = std::min(num_blocks, 32768 / block_size);
    options.num_host_blocks = host_blocks;
    options.check_host_copies = true;
    options.group_layers = true;
    options.random_weights = model.random_weights;
    auto runner = CreateTransformerRunner(std::move(options));
    EXPECT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ((*runner)->group_windows().size(), model.num_groups);
    return *std::move(runner);
  };
}

void ExpectSameIdsOfModel(const ModelCase& model, DeviceKind device) {
  const auto config = LoadModelConfig(model.path);
  ASSERT_TRUE(config.ok()) << config.status();
  const auto workload = MakeWorkload(
      {.num_requests = kSanitized ? 12 : 20, .vocab_size = config->vocab_size, .max_prompt = 300, .max_output = 32});
  const RunnerFactory make_runner = ModelRunners(model, device);
  ExpectSameIdsInEveryVariant(make_runner, *config, workload, /*max_model_len=*/400, model.small_pool);
  ExpectSameIdsOfBranches(make_runner, *config, model.small_pool);
}

std::vector<DeviceKind> Devices() {
  if (kSanitized) return {DeviceKind::kCpu};
  return {DeviceKind::kReference, DeviceKind::kCpu};
}

class LayerGroupsModelTest : public ::testing::TestWithParam<DeviceKind> {};

TEST_P(LayerGroupsModelTest, HybridGivesTheSameIdsInEveryVariant) {
  const HybridModel model;
  ExpectSameIdsOfModel({.path = model.folder(), .random_weights = true, .num_groups = 2, .small_pool = 120},
                       GetParam());
}

TEST_P(LayerGroupsModelTest, MistralGivesTheSameIdsInEveryVariant) {
  const auto path = RefPath("tiny/mistral");
  if (!path) GTEST_SKIP() << "no oracle data: tiny/mistral";
  ExpectSameIdsOfModel({.path = *path, .small_pool = 24}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerGroupsModelTest, ::testing::ValuesIn(Devices()),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace quire::testing
