// The integrity mode on real kernels: nothing that is shared or findable is ever written, what is freed is poison, and
// a block that changed anyway reaches nobody.

#include "model/kv_integrity.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/kv_layout.h"
#include "kernels/factory.h"
#include "model/transformer_runner.h"
#include "scheduler/engine_with_runner.h"
#include "tests/integration/hybrid_model.h"
#include "tests/integration/row_independence.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

// --- KvIntegrity alone

class KvIntegrityTest : public ::testing::Test {
 protected:
  static constexpr int32_t kBlockSize = 8;

  KvIntegrityTest() : backend_(*CreateBackend({.kind = DeviceKind::kReference, .num_threads = 1})) {
    config_.num_layers = 2, config_.num_kv_heads = 2, config_.head_dim = 4;
    kv_.emplace(*KvCache::Create(*backend_, config_, OneGroup(config_), /*num_blocks=*/6, kBlockSize, DType::kF32,
                                 /*num_host_blocks=*/2));
  }

  // K (or V) of a token.
  float* Row(int32_t layer, int32_t block, int32_t head, bool value, int32_t token) {
    const PagedKvView& view = kv_->layer(layer);
    return static_cast<float*>(view.data) + view.bytes_per_block() / 4 * block +
           ((int64_t{head} * 2 + (value ? 1 : 0)) * kBlockSize + token) * view.head_dim;
  }

  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  std::optional<KvCache> kv_;
};

TEST_F(KvIntegrityTest, AnyChangeOfASealedTokenIsFound_AndNoneBehindThem) {
  const KvIntegrityWork::Item sealed[] = {{3, 5}};
  for (const int32_t layer : {0, 1}) {
    for (const int32_t head : {0, 1}) {
      for (const bool value : {false, true}) {
        for (int32_t token = 0; token < kBlockSize; ++token) {
          KvIntegrity integrity(&*kv_);
          ASSERT_EQ(integrity.BeforeCopies({.checksums = sealed}), absl::OkStatus());
          Row(layer, 3, head, value, token)[3] += 1;
          const absl::Status status = integrity.BeforeCopies({.verify = sealed});
          EXPECT_EQ(status.code(), token < 5 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << token;
          EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "KV block 3")) << status;
        }
      }
    }
  }
}

TEST_F(KvIntegrityTest, AnyChangeOfAScaleOfASealedTokenIsFound_AndNoneBehindThem) {
  const auto backend = *CreateBackend({.kind = DeviceKind::kCpu, .num_threads = 1});
  const KvCache kv = *KvCache::Create(*backend, config_, OneGroup(config_), /*num_blocks=*/6, kBlockSize, DType::kI8);
  const KvIntegrityWork::Item sealed[] = {{3, 5}};
  const PagedKvView& view = kv.layer(1);
  const KvRunLayout layout = MakeKvRunLayout(view.dtype, view.block_size, view.head_dim);
  for (const int64_t head : {0, 1}) {
    for (const bool value : {false, true}) {
      for (int32_t token = 0; token < kBlockSize; ++token) {
        KvIntegrity integrity(&kv);
        ASSERT_EQ(integrity.BeforeCopies({.checksums = sealed}), absl::OkStatus());
        std::byte* const run = static_cast<std::byte*>(view.data) + 3 * view.bytes_per_block() + head * layout.bytes();
        *reinterpret_cast<float*>(run + (value ? layout.v_scale(token) : layout.k_scale(token))) += 1;
        const absl::Status status = integrity.BeforeCopies({.verify = sealed});
        EXPECT_EQ(status.code(), token < 5 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << token;
      }
    }
  }
}

TEST_F(KvIntegrityTest, FoundWithAnotherNumberOfTokensThanSealedIsLoss) {
  KvIntegrity integrity(&*kv_);
  const KvIntegrityWork::Item sealed[] = {{2, 4}}, found[] = {{2, 5}};
  EXPECT_EQ(integrity.BeforeCopies({.checksums = sealed, .verify = found}).code(), absl::StatusCode::kDataLoss);
}

TEST_F(KvIntegrityTest, AHostBlockThatChangedDoesNotComeBack) {
  const BlockCopyIds out[] = {{1, 7}, {2, 6}}, in[] = {{7, 3}}, twice[] = {{3, 7}, {7, 4}, {2, 7}, {7, 5}};
  for (const size_t array : {0, 1}) {
    for (const bool checks : {true, false}) {
      KvIntegrity integrity(&*kv_, /*with_shadow=*/false, checks);
      *Row(static_cast<int32_t>(array), 1, 1, true, 7) = 5;
      ASSERT_EQ(integrity.CopyBlocks(backend_->ops(), out), absl::OkStatus());
      ASSERT_EQ(integrity.CopyBlocks(backend_->ops(), in), absl::OkStatus());
      EXPECT_EQ(*Row(static_cast<int32_t>(array), 3, 1, true, 7), 5);
      ASSERT_EQ(integrity.CopyBlocks(backend_->ops(), twice), absl::OkStatus());
      const HostKvView host = kv_->host(array);
      static_cast<float*>(host.data)[host.stride / 4 + 9] += 1;  // of block 7
      const absl::Status status = integrity.CopyBlocks(backend_->ops(), in);
      EXPECT_EQ(status.code(), checks ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
      EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "host KV block 1")) << status;
    }
  }
}

TEST_F(KvIntegrityTest, PoisonIsNotANumber) {
  KvIntegrity integrity(&*kv_);
  const int32_t poison[] = {4};
  ForwardBatch batch;
  batch.integrity.poison = poison;
  integrity.AfterCopies(batch);
  EXPECT_NE(*Row(1, 4, 1, true, 7), *Row(1, 4, 1, true, 7));
  EXPECT_EQ(*Row(1, 3, 1, true, 7), 0);
  EXPECT_EQ(*Row(1, 5, 0, false, 0), 0);
}

TEST_F(KvIntegrityTest, TheShadowFindsAWriteOutsideOfTheSlots) {
  const std::vector<int32_t> slots = {2 * kBlockSize + 6};
  ForwardBatch batch;
  batch.slot_mapping = slots;
  for (const bool stray : {false, true}) {
    KvIntegrity integrity(&*kv_, /*with_shadow=*/true);
    Row(0, 2, 1, true, 6)[0] += 1;
    if (stray) Row(1, 2, 0, false, 7)[3] += 1;
    const absl::Status status = integrity.AfterStep(batch);
    EXPECT_EQ(status.code(), stray ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk) << status;
  }
}

TEST_F(KvIntegrityTest, TheShadowFollowsCopiesInOrderAndPoison) {
  const std::vector<BlockCopyIds> copies = {{1, 2}, {2, 3}};
  const std::vector<int32_t> poison = {5};
  ForwardBatch batch;
  batch.block_copies = copies;
  batch.integrity.poison = poison;
  *Row(0, 1, 0, false, 0) = 7;
  KvIntegrity integrity(&*kv_, /*with_shadow=*/true);
  for (const PagedKvView& array : kv_->arrays()) {
    ASSERT_EQ(backend_->ops().CopyBlocks({copies, array}), absl::OkStatus());
  }
  integrity.AfterCopies(batch);
  EXPECT_EQ(integrity.AfterStep(batch), absl::OkStatus());
  EXPECT_EQ(*Row(0, 3, 0, false, 0), 7);
}

// --- Through the engine

struct Counts {
  int64_t checksums = 0, verified = 0, poisoned = 0, shared = 0;
};

// No row goes into a block that two tables of the step hold.
absl::Status CheckSlots(const ForwardBatch& batch, int32_t block_size, Counts* counts) {
  std::map<int32_t, int32_t> holders;
  for (int32_t g = 0; g < batch.num_groups(); ++g) {
    const GroupTables group = batch.group(g);
    for (size_t s = 0; s < batch.context_lens.size(); ++s) {
      const int32_t used = (batch.context_lens[s] + block_size - 1) / block_size;
      for (int32_t i = 0; i < used; ++i) ++holders[group.block_tables[s * group.block_table_stride + i]];
    }
  }
  holders.erase(0);  // has slid out
  for (const auto& [block, tables] : holders) counts->shared += tables > 1;
  for (int32_t g = 0; g < batch.num_groups(); ++g) {
    for (const int32_t slot : batch.group(g).slot_mapping) {
      if (holders[slot / block_size] != 1) return absl::InternalError(absl::StrCat("slot ", slot, " is shared"));
    }
  }
  return absl::OkStatus();
}

struct Case {
  DeviceKind device;
  int32_t block_size;
  std::string model;    // hybrid: two layer groups; tiny/mistral: one, of a window
  int32_t pool_tokens;  // so few that blocks are evicted
  std::optional<DType> kv_dtype = {};
};

class KvIntegrityEngineTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto model = RefPath(GetParam().model);
    if (!is_hybrid() && !model) GTEST_SKIP() << "no oracle data: " << GetParam().model;
    model_ = is_hybrid() ? hybrid_.folder() : *model;
  }

  static bool is_hybrid() { return GetParam().model == "hybrid"; }

  std::unique_ptr<Engine> MakeEngine(bool integrity, int32_t pool_tokens, RunnerHooks hooks) {
    const int32_t block_size = GetParam().block_size;
    TransformerRunnerOptions runner_options;
    runner_options.model_path = model_;
    runner_options.backend = *CreateBackend({.kind = GetParam().device, .num_threads = 1});
    runner_options.block_size = block_size;
    runner_options.num_kv_blocks = 1 + pool_tokens / block_size;
    runner_options.group_layers = true;
    runner_options.random_weights = is_hybrid();
    runner_options.shadow_kv = integrity;
    runner_options.kv_dtype = GetParam().kv_dtype;
    auto runner = CreateTransformerRunner(std::move(runner_options));
    EXPECT_TRUE(runner.ok()) << runner.status();
    EngineOptions options;
    options.max_model_len = 480;
    options.kv_integrity = integrity;
    options.scheduler.max_num_batched_tokens = 256;
    options.scheduler.max_num_seqs = 64;
    return *CreateEngineWithRunner(options, *LoadModelConfig(model_),
                                   std::make_unique<HookedRunner>(*std::move(runner), std::move(hooks)));
  }

  const HybridModel hybrid_;
  std::string model_;
};

TEST_P(KvIntegrityEngineTest, NothingSharedIsWrittenNorPoisonRead) {
  auto workload = MakeWorkload({.num_requests = kSanitized ? 12 : 24, .vocab_size = 320, .max_prompt = 300});
  workload.push_back(workload.back());  // which surely finds something
  const auto plain = MakeEngine(false, /*pool_tokens=*/40960, {});
  const WorkloadResult expected = RunWorkload(*plain, workload, /*one_at_a_time=*/false);
  Counts counts;
  RunnerHooks hooks;
  hooks.before_step = [&](int64_t, const ForwardBatch& batch) {
    counts.checksums += static_cast<int64_t>(batch.integrity.checksums.size());
    counts.verified += static_cast<int64_t>(batch.integrity.verify.size());
    counts.poisoned += static_cast<int64_t>(batch.integrity.poison.size());
    return CheckSlots(batch, GetParam().block_size, &counts);
  };
  // What is done when many run at once depends on when they arrive; one at a time it is always the same.
  const auto busy = MakeEngine(true, GetParam().pool_tokens * 3 / 2, hooks);
  ExpectSameIds(expected, RunWorkload(*busy, workload, /*one_at_a_time=*/false), "with integrity, small pool");
  counts = {};
  const auto engine = MakeEngine(true, GetParam().pool_tokens, std::move(hooks));
  const WorkloadResult result = RunWorkload(*engine, workload, /*one_at_a_time=*/true);
  ExpectSameIds(expected, result, "with integrity, one at a time");
  EXPECT_GT(counts.checksums, 0);
  EXPECT_GT(counts.verified, 0);
  EXPECT_GT(counts.poisoned, 0);
  EXPECT_GT(counts.shared, 0);
  EXPECT_GT(result.stats.evictions, 0);
}

TEST_P(KvIntegrityEngineTest, ABlockThatChangedReachesNobody) {
  // As if the check of step `lost` had found one.
  int64_t lost = -1;
  RunnerHooks hooks;
  hooks.before_step = [&](int64_t step, const ForwardBatch&) {
    return step == lost ? absl::DataLossError("KV block 7 changed") : absl::OkStatus();
  };
  const auto engine = MakeEngine(true, /*pool_tokens=*/8192, std::move(hooks));
  OutputCollector collector(*engine, 1);
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 4;
  params.ignore_eos = true;
  const auto ask = [&](uint64_t handle) {
    EngineRequest request =
        MakeEngineRequest(std::vector<int32_t>(100, 17), params, engine->info().block_size, engine->info().key_context);
    request.handle = handle;
    return request;
  };
  // Four steps a request. The third request's first step fails, so the fourth finds nothing.
  lost = 9;
  engine->Start();
  std::vector<int32_t> cached;
  for (uint64_t handle = 1; handle <= 4; ++handle) {
    ASSERT_EQ(engine->Submit(ask(handle)), absl::OkStatus());
    const auto answer = collector.Await(handle);
    cached.push_back(answer.last.cached_tokens);
    EXPECT_EQ(answer.last.error.code(), handle == 3 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
  }
  EXPECT_EQ(cached[0], 0);
  EXPECT_EQ(cached[1], 99);
  EXPECT_EQ(cached[3], 0);
  engine->Stop();
  collector.Join();
}

TEST_P(KvIntegrityEngineTest, AStepThatFailsBeforeItsChecksumsIsNoLossLater) {
  RunnerHooks hooks;
  hooks.before_step = [&](int64_t step, const ForwardBatch& batch) {
    if (step != 2) return absl::OkStatus();
    EXPECT_FALSE(batch.integrity.checksums.empty()) << "of the prompt";
    return absl::InternalError("the device fell over");
  };
  const auto engine = MakeEngine(true, /*pool_tokens=*/8192, std::move(hooks));
  OutputCollector collector(*engine, 1);
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 4;
  params.ignore_eos = true;
  engine->Start();
  for (uint64_t handle = 1; handle <= 3; ++handle) {
    EngineRequest request =
        MakeEngineRequest(std::vector<int32_t>(100, 17), params, engine->info().block_size, engine->info().key_context);
    request.handle = handle;
    ASSERT_EQ(engine->Submit(request), absl::OkStatus());
    const auto answer = collector.Await(handle);
    EXPECT_EQ(answer.last.error.code(), handle == 1 ? absl::StatusCode::kInternal : absl::StatusCode::kOk)
        << answer.last.error;
    if (handle == 2) {
      EXPECT_GT(answer.last.cached_tokens, 0) << "what was stored before the failure";
    }
  }
  engine->Stop();
  collector.Join();
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DeviceKind device : {DeviceKind::kReference, DeviceKind::kCpu}) {
    for (const int32_t block_size : {1, 16, 32}) cases.push_back({device, block_size, "tiny/llama_gqa", 1024});
    cases.push_back({device, 16, "tiny/mistral", 512});
    cases.push_back({device, 8, "hybrid", 1536});
  }
  cases.push_back({DeviceKind::kCpu, 16, "tiny/llama_gqa", 1024, DType::kI8});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Devices, KvIntegrityEngineTest, ::testing::ValuesIn(Cases()), [](const auto& test) {
  const std::string& model = test.param.model;
  return absl::StrCat(std::string(Name(test.param.device)), "_", model.substr(model.find('/') + 1), "_block",
                      test.param.block_size, test.param.kv_dtype ? "_" : "",
                      std::string(test.param.kv_dtype ? Name(*test.param.kv_dtype) : ""));
});

}  // namespace
}  // namespace quire::testing
