#include "tests/integration/row_independence_matrix.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/factory.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/layer_groups.h"

namespace quire::testing {
namespace {

struct Variant {
  std::string name;
  int32_t block_size = 16;
  int32_t pool_tokens = 0;
  int32_t max_num_batched_tokens = 2048;
  bool caching = false;
  bool one_at_a_time = false;
  int32_t host_tokens = 0;  // of the host tier
  PreemptionMode preemption = PreemptionMode::kAuto;
  int32_t num_threads = 1;
  std::optional<CpuIsa> isa = {};  // unset: the matrix's
  size_t num_requests = SIZE_MAX;  // at most
};

void PrintCounts(const std::string& name, const std::string& device, const std::vector<WorkloadRequest>& workload,
                 const WorkloadResult& result, absl::Duration elapsed) {
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
  for (const WorkloadRequest& request : workload) num_prompt_tokens += static_cast<int64_t>(request.prompt.size());
  for (const auto& sequences : result.ids) {
    for (const auto& ids : sequences) num_output_tokens += static_cast<int64_t>(ids.size());
  }
  const EngineStats& stats = result.stats;
  absl::PrintF(
      "  %-22s %-20s %4d requests, %d + %d tokens, %6d steps, %4d preemptions, %4d swaps, %6d tokens from the cache, "
      "%.1f s\n",
      name, device, workload.size(), num_prompt_tokens, num_output_tokens, stats.steps, stats.preemptions, stats.swaps,
      stats.prefix_hit_tokens, absl::ToDoubleSeconds(elapsed));
  std::fflush(stdout);
}

int64_t HostBytes(const MatrixOptions& matrix, int64_t tokens) {
  const ModelConfig config = *LoadModelConfig(matrix.model_path);
  const DType dtype = matrix.kv_dtype.value_or(matrix.device == DeviceKind::kReference ? DType::kF32 : DType::kF16);
  return tokens * KvBytesPerBlock(config, GroupLayers(config), /*block_size=*/1, dtype);
}

WorkloadResult RunVariant(const MatrixOptions& matrix, std::vector<WorkloadRequest> workload, const Variant& variant) {
  if (workload.size() > variant.num_requests) workload.resize(variant.num_requests);
  EngineOptions options;
  options.model_path = matrix.model_path;
  options.device = matrix.device;
  options.cpu_isa = variant.isa.value_or(matrix.isa);
  options.kv_dtype = matrix.kv_dtype;
  options.num_threads = variant.num_threads;
  options.max_model_len = matrix.max_model_len;
  options.block_size = variant.block_size;
  options.num_kv_blocks = variant.pool_tokens / variant.block_size;
  options.max_queued_tokens = int64_t{1} << 30;
  if (variant.host_tokens > 0) options.host_kv_bytes = HostBytes(matrix, variant.host_tokens);
  options.scheduler.preemption = variant.preemption;
  options.scheduler.max_num_seqs = 64;
  options.scheduler.max_num_batched_tokens = variant.max_num_batched_tokens;
  options.scheduler.enable_prefix_caching = variant.caching;
  auto engine = CreateEngine(options);
  if (!engine.ok()) {
    ADD_FAILURE() << variant.name << ": " << engine.status();
    return {};
  }
  const absl::Time began = absl::Now();
  WorkloadResult result = RunWorkload(**engine, workload, variant.one_at_a_time);
  PrintCounts(variant.name, (*engine)->info().device, workload, result, absl::Now() - began);
  return result;
}

std::vector<Variant> AllVariants(const MatrixOptions& matrix) {
  const int32_t large = matrix.large_pool_tokens, small = matrix.small_pool_tokens;
  return {
      {.name = "64 at once", .pool_tokens = large},
      {.name = "64 tokens a step", .pool_tokens = large, .max_num_batched_tokens = 64},
      {.name = "small pool", .pool_tokens = small},
      {.name = "cached, alone", .pool_tokens = large, .caching = true, .one_at_a_time = true},
      {.name = "cached, 64 at once", .pool_tokens = large, .caching = true},
      {.name = "block size 1", .block_size = 1, .pool_tokens = large},
      {.name = "block size 32", .block_size = 32, .pool_tokens = large},
      {.name = "two threads", .pool_tokens = large, .num_threads = 2},
      {.name = "cached, small pool", .pool_tokens = small, .caching = true},
      {.name = "swap, small pool", .pool_tokens = small, .host_tokens = 8 * small, .preemption = PreemptionMode::kSwap},
      {.name = "cached, swap, small pool",
       .pool_tokens = small,
       .caching = true,
       .host_tokens = 2 * small,
       .preemption = PreemptionMode::kSwap},
      {.name = "recompute, small pool",
       .pool_tokens = small,
       .caching = true,
       .host_tokens = 2 * small,
       .preemption = PreemptionMode::kRecompute},
      {.name = "auto, small pool", .pool_tokens = small, .caching = true, .host_tokens = 2 * small},
  };
}

// Each condition once, several in a run. The base runs on two threads.
std::vector<Variant> MergedVariants(const MatrixOptions& matrix) {
  const int32_t large = matrix.large_pool_tokens, small = matrix.small_pool_tokens;
  return {
      {.name = "64 at once, one thread", .pool_tokens = large},
      {.name = "64 a step, block size 1, small pool",
       .block_size = 1,
       .pool_tokens = small,
       .max_num_batched_tokens = 64,
       .num_threads = 2},
      {.name = "cached, alone, block size 32",
       .block_size = 32,
       .pool_tokens = large,
       .caching = true,
       .one_at_a_time = true,
       .num_threads = 2},
      {.name = "cached, swap, small pool",
       .pool_tokens = small,
       .caching = true,
       .host_tokens = 2 * small,
       .preemption = PreemptionMode::kSwap,
       .num_threads = 2},
  };
}

std::vector<Variant> IsaVariants(const MatrixOptions& matrix) {
  std::vector<Variant> variants;
  if (matrix.device != DeviceKind::kCpu) return variants;
  const std::vector<CpuIsa> available = AvailableCpuIsas();
  const CpuIsa base = matrix.isa == CpuIsa::kAuto ? available.back() : matrix.isa;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const std::string name(Name(isa));
    const int32_t num_requests = isa == CpuIsa::kScalar ? matrix.num_scalar_requests : matrix.num_isa_requests;
    if (num_requests == 0 || isa == base) continue;
    if (std::find(available.begin(), available.end(), isa) == available.end()) {
      std::printf("  this machine has no %s: skipped\n", name.c_str());
      continue;
    }
    variants.push_back({.name = "isa " + name,
                        .pool_tokens = matrix.large_pool_tokens,
                        .caching = true,
                        .num_threads = 2,
                        .isa = isa,
                        .num_requests = static_cast<size_t>(num_requests)});
  }
  return variants;
}

}  // namespace

void ExpectRowIndependence(const MatrixOptions& matrix) {
  const std::vector<WorkloadRequest> workload = MakeWorkload(matrix.workload);
  const Variant base = {.name = "alone",
                        .pool_tokens = matrix.large_pool_tokens,
                        .one_at_a_time = true,
                        .num_threads = matrix.merge_variants ? 2 : 1};
  const WorkloadResult alone = RunVariant(matrix, workload, base);
  ASSERT_EQ(alone.ids.size(), workload.size());

  std::vector<Variant> variants = matrix.merge_variants ? MergedVariants(matrix) : AllVariants(matrix);
  for (const Variant& variant : IsaVariants(matrix)) variants.push_back(variant);
  for (const Variant& variant : variants) {
    const WorkloadResult result = RunVariant(matrix, workload, variant);
    ExpectSameIds(alone, result, variant.name);
    if (variant.pool_tokens == matrix.small_pool_tokens) {
      EXPECT_GE(result.stats.preemptions, variant.caching ? 1 : 20) << variant.name;
    }
    if (variant.preemption == PreemptionMode::kSwap) {
      EXPECT_GE(result.stats.swaps, result.stats.preemptions * 9 / 10) << variant.name;  // some hold no block yet
      EXPECT_GT(result.stats.host_bytes_in, 0) << variant.name;
    } else if (variant.preemption == PreemptionMode::kRecompute) {
      EXPECT_EQ(result.stats.swaps, 0) << variant.name;
    }
    if (!variant.caching) {
      EXPECT_EQ(result.stats.prefix_hit_tokens, 0) << variant.name;
    }
    if (variant.caching && variant.one_at_a_time) {
      EXPECT_EQ(result.stats.evictions, 0);
      EXPECT_GT(result.stats.prefix_hit_tokens, 0);
      EXPECT_EQ(result.cached_tokens, ExpectedCachedTokens(workload, result, variant.block_size));
    }
  }
}

}  // namespace quire::testing
