#include "scheduler/engine_sizing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "block_manager/group_pages.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

constexpr int32_t kDefaultBlockSize = 32;
constexpr int64_t kMaxDefaultPoolBytes = int64_t{4} << 30;
constexpr int64_t kDefaultCudaHostBytes = int64_t{4} << 30;
constexpr std::array<int32_t, 5> kBlockSizes = {1, 8, 16, 32, 64};

template <typename T>
absl::Status CheckRange(const char* option, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--", option, " ", value, " is outside ", low, " .. ", high));
}

int64_t HostKvBytes(const EngineOptions& options) {
  return options.host_kv_bytes.value_or(options.device == DeviceKind::kCuda ? kDefaultCudaHostBytes : 0);
}

// Sets the blocks of the host tier; `memory_bytes` are the host's.
absl::Status SizeHostTier(const EngineOptions& options, int64_t block_bytes, int64_t memory_bytes, int64_t max_blocks,
                          EngineSizes* sizes) {
  const int64_t bytes = HostKvBytes(options);
  if (bytes == 0) return absl::OkStatus();
  if (bytes > memory_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("--host-kv-memory ", bytes, " is above the ", memory_bytes,
                                                      " bytes of memory that the process may use"));
  }
  const int64_t blocks = bytes / block_bytes;
  if (blocks == 0) {
    return absl::FailedPreconditionError(absl::StrCat("--host-kv-memory ", bytes, " holds no block: one of ",
                                                      sizes->block_size, " tokens takes ", block_bytes, " bytes"));
  }
  // A larger one could not be numbered.
  sizes->num_host_blocks = static_cast<int32_t>(std::min(blocks, max_blocks - sizes->num_kv_blocks));
  return absl::OkStatus();
}

// Tokens of the longest sequence whose blocks in all layer groups fit the pool.
int32_t LongestSequence(const std::vector<int32_t>& group_windows, const EngineSizes& sizes) {
  int32_t fits = 0, too_long = std::numeric_limits<int32_t>::max();
  while (too_long - fits > 1) {
    const int32_t middle = fits + (too_long - fits) / 2;
    const bool ok = GroupPages::PagesForSequence(group_windows, sizes.block_size, middle) <= sizes.num_kv_blocks;
    (ok ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace

absl::Status ValidateEngineOptions(const EngineOptions& options) {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  if (options.block_size != 0 &&
      std::find(kBlockSizes.begin(), kBlockSizes.end(), options.block_size) == kBlockSizes.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--block-size ", options.block_size, " is none of ", absl::StrJoin(kBlockSizes, ", ")));
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("threads", options.num_threads, 0, 256));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-model-len", options.max_model_len, 0, kMax32));
  QUIRE_RETURN_IF_ERROR(CheckRange<int64_t>("kv-cache-memory", options.kv_cache_bytes, 0, kMax64));
  QUIRE_RETURN_IF_ERROR(CheckRange("memory-fraction", options.memory_fraction, 0.0, 0.95));
  QUIRE_RETURN_IF_ERROR(CheckRange<int64_t>("kv-blocks", options.num_kv_blocks, 0, kMax32));
  QUIRE_RETURN_IF_ERROR(CheckRange<int64_t>("host-kv-memory", HostKvBytes(options), 0, kMax64));
  if (options.scheduler.preemption == PreemptionMode::kSwap && HostKvBytes(options) == 0) {
    return absl::FailedPreconditionError("--preemption swap needs --host-kv-memory above 0");
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("max-num-seqs", options.scheduler.max_num_seqs, 1, 65536));
  QUIRE_RETURN_IF_ERROR(CheckRange("speculation-length", options.scheduler.max_drafts, 1, kMaxDrafts));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-num-batched-tokens", options.scheduler.max_num_batched_tokens, 1, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckRange("max-queued-requests", options.max_queued_requests, 1, kMax32));
  QUIRE_RETURN_IF_ERROR(CheckRange<int64_t>("max-queued-tokens", options.max_queued_tokens, 1, kMax64));
  QUIRE_RETURN_IF_ERROR(
      CheckRange<int64_t>("schedule-trace-max", options.schedule_trace_max_bytes, 4096, int64_t{1} << 62));
  QUIRE_RETURN_IF_ERROR(CheckRange("output shards", options.num_output_shards, 1, 16));
  if (!(options.sim_time_scale >= 0) || !std::isfinite(options.sim_time_scale)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--sim-time-scale ", options.sim_time_scale, " is not 0 or more"));
  }
  if (options.step_timeout <= absl::ZeroDuration()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--step-timeout ", absl::FormatDuration(options.step_timeout), " is not above 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineSizes> SizeEngine(const EngineOptions& options, const ModelConfig& config,
                                       int64_t block_bytes_per_token, int64_t memory_bytes,
                                       const std::vector<int32_t>& group_windows,
                                       std::optional<int64_t> host_memory_bytes) {
  EngineSizes sizes;
  sizes.block_size = options.block_size != 0 ? options.block_size : kDefaultBlockSize;
  const int64_t block_bytes = std::max<int64_t>(1, block_bytes_per_token) * sizes.block_size;
  // Slots are int32, the null block's included, in all groups.
  const int64_t max_blocks = std::numeric_limits<int32_t>::max() / sizes.block_size / std::ssize(group_windows) - 1;

  int64_t blocks = options.num_kv_blocks;
  if (blocks == 0) {
    const bool by_fraction = options.memory_fraction > 0;
    const bool by_default = !by_fraction && options.kv_cache_bytes == 0;
    const int64_t bytes = by_fraction  ? static_cast<int64_t>(options.memory_fraction * memory_bytes)
                          : by_default ? std::min(memory_bytes / 4, kMaxDefaultPoolBytes)
                                       : options.kv_cache_bytes;
    if (bytes > memory_bytes) {
      return absl::FailedPreconditionError(absl::StrCat("--kv-cache-memory ", bytes, " is above the ", memory_bytes,
                                                        " bytes of memory that the process may use"));
    }
    blocks = bytes / block_bytes;
    if (by_default) blocks = std::min(blocks, max_blocks);
    if (blocks == 0) {
      return absl::FailedPreconditionError(absl::StrCat("--kv-cache-memory ", bytes, " holds no block: one of ",
                                                        sizes.block_size, " tokens takes ", block_bytes, " bytes"));
    }
  }
  if (blocks > memory_bytes / block_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("--kv-blocks ", blocks, " of ", block_bytes,
                                                      " bytes each are above the ", memory_bytes,
                                                      " bytes of memory that the process may use"));
  }
  if (blocks > max_blocks) {
    return absl::FailedPreconditionError(absl::StrCat("a KV pool of ", blocks, " blocks of ", sizes.block_size,
                                                      " tokens (--kv-blocks, --kv-cache-memory) is above the limit of ",
                                                      max_blocks, " blocks"));
  }
  sizes.num_kv_blocks = static_cast<int32_t>(blocks);

  QUIRE_RETURN_IF_ERROR(
      SizeHostTier(options, block_bytes, host_memory_bytes.value_or(memory_bytes), max_blocks, &sizes));

  const int32_t pool_tokens = LongestSequence(group_windows, sizes);
  const int32_t limit = std::min(config.max_position_embeddings, pool_tokens);
  const int32_t wanted = std::min(options.max_model_len, config.max_position_embeddings);
  if (wanted > pool_tokens) {
    return absl::FailedPreconditionError(absl::StrCat("--max-model-len ", wanted, " is above the ", pool_tokens,
                                                      " tokens that ", sizes.num_kv_blocks, " KV blocks of ",
                                                      sizes.block_size, " hold"));
  }
  sizes.max_model_len = wanted != 0 ? wanted : limit;
  if (sizes.max_model_len < 2) {
    return absl::FailedPreconditionError(absl::StrCat("--max-model-len ", sizes.max_model_len,
                                                      " leaves no room for a prompt token and an output token"));
  }
  return sizes;
}

}  // namespace quire
