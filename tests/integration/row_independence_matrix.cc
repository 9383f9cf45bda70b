#include "tests/integration/row_independence_matrix.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/factory.h"

namespace quire::testing {
namespace {

struct Variant {
  std::string name;
  int32_t block_size = 16;
  int32_t pool_tokens = 0;
  int32_t max_num_batched_tokens = 2048;
  bool caching = false;
  bool one_at_a_time = false;
  int32_t num_threads = 1;
  CpuIsa isa = CpuIsa::kAuto;
  size_t num_requests = SIZE_MAX;  // at most
};

WorkloadResult RunVariant(const MatrixOptions& matrix, std::vector<WorkloadRequest> workload, const Variant& variant) {
  if (workload.size() > variant.num_requests) workload.resize(variant.num_requests);
  EngineOptions options;
  options.model_path = matrix.model_path;
  options.device = matrix.device;
  options.cpu_isa = variant.isa;
  options.num_threads = variant.num_threads;
  options.max_model_len = matrix.max_model_len;
  options.block_size = variant.block_size;
  options.num_kv_blocks = variant.pool_tokens / variant.block_size;
  options.max_queued_tokens = int64_t{1} << 30;
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
  std::printf("  %-22s %-24s %4zu requests %7.2f s, %d steps, %d preemptions, %d tokens from the cache\n",
              variant.name.c_str(), (*engine)->info().device.c_str(), workload.size(),
              absl::ToDoubleSeconds(absl::Now() - began), static_cast<int>(result.stats.steps),
              static_cast<int>(result.stats.preemptions), static_cast<int>(result.stats.prefix_hit_tokens));
  std::fflush(stdout);
  return result;
}

std::vector<Variant> AllVariants(const MatrixOptions& matrix) {
  const int32_t large = matrix.large_pool_tokens, small = matrix.small_pool_tokens;
  return {
      {.name = "64 at once", .pool_tokens = large},
      {.name = "64 tokens a step", .pool_tokens = large, .max_num_batched_tokens = 64},
      {.name = "small pool", .pool_tokens = small, .num_threads = 2},
      {.name = "cached, 64 at once", .pool_tokens = large, .caching = true, .num_threads = 2},
      {.name = "block size 1", .block_size = 1, .pool_tokens = large, .caching = true, .num_threads = 2},
      {.name = "block size 32", .block_size = 32, .pool_tokens = small, .caching = true},
  };
}

std::vector<Variant> MergedVariants(const MatrixOptions& matrix) {
  const int32_t large = matrix.large_pool_tokens, small = matrix.small_pool_tokens;
  return {
      {.name = "64 at once", .pool_tokens = large, .num_threads = 2},
      {.name = "64 a step, block size 1",
       .block_size = 1,
       .pool_tokens = large,
       .max_num_batched_tokens = 64,
       .num_threads = 2},
      {.name = "small pool", .pool_tokens = small, .num_threads = 2},
      {.name = "cached, block size 32", .block_size = 32, .pool_tokens = large, .caching = true, .num_threads = 2},
  };
}

std::vector<Variant> IsaVariants(const MatrixOptions& matrix) {
  std::vector<Variant> variants;
  if (matrix.device != DeviceKind::kCpu) return variants;
  const std::vector<CpuIsa> available = AvailableCpuIsas();
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const std::string name(Name(isa));
    if (std::find(available.begin(), available.end(), isa) == available.end()) {
      std::printf("  this machine has no %s: skipped\n", name.c_str());
    } else if (isa != CpuIsa::kScalar || matrix.scalar_isa) {
      const int32_t num_requests = matrix.num_isa_requests / (isa == CpuIsa::kScalar ? 5 : 1);
      variants.push_back({.name = "isa " + name,
                          .pool_tokens = matrix.large_pool_tokens,
                          .caching = true,
                          .num_threads = 2,
                          .isa = isa,
                          .num_requests = static_cast<size_t>(num_requests)});
    }
  }
  return variants;
}

}  // namespace

void ExpectRowIndependence(const MatrixOptions& matrix) {
  const std::vector<WorkloadRequest> workload = MakeWorkload(matrix.workload);
  const int32_t large = matrix.large_pool_tokens;
  const WorkloadResult alone =
      RunVariant(matrix, workload, {.name = "alone", .pool_tokens = large, .one_at_a_time = true});
  ASSERT_EQ(alone.ids.size(), workload.size());

  std::vector<Variant> variants = matrix.merge_variants ? MergedVariants(matrix) : AllVariants(matrix);
  for (const Variant& variant : IsaVariants(matrix)) variants.push_back(variant);
  for (const Variant& variant : variants) {
    const WorkloadResult result = RunVariant(matrix, workload, variant);
    ExpectSameIds(alone, result, variant.name);
    if (variant.name == "small pool") {
      EXPECT_GE(result.stats.preemptions, 20);
    }
    if (!variant.caching) {
      EXPECT_EQ(result.stats.prefix_hit_tokens, 0) << variant.name;
    }
  }

  const WorkloadResult cached = RunVariant(
      matrix, workload,
      {.name = "cached, alone", .pool_tokens = large, .caching = true, .one_at_a_time = true, .num_threads = 2});
  ExpectSameIds(alone, cached, "cached, alone");
  EXPECT_EQ(cached.stats.evictions, 0);
  EXPECT_GT(cached.stats.prefix_hit_tokens, 0);
  EXPECT_EQ(cached.cached_tokens, ExpectedCachedTokens(workload, cached));
}

}  // namespace quire::testing
