#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "block_manager/eviction_order.h"
#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/factory.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// Everything an engine is made from; each value once, with unit, default and range. server/config fills it.
struct EngineOptions {
  std::string model_path;  // directory or .gguf file
  DeviceKind device = DeviceKind::kCpu;
  CpuIsa cpu_isa = CpuIsa::kAuto;
  int32_t device_index = 0;       // cuda only
  bool deterministic = false;     // cuda only: the same tokens whatever the batch, as the other devices give anyway
  int32_t num_threads = 0;        // 0: physical cores, within a quota
  bool random_weights = false;    // --load-format random: weights from the seed and the configuration alone
  int32_t max_model_len = 0;      // tokens; 0: the model's, cut to what the pool can hold
  int32_t block_size = 0;         // tokens; 0: 32
  int64_t kv_cache_bytes = 0;     // pool size; 0: a quarter of RAM, at most 4 GiB
  double memory_fraction = 0;     // pool size as a part of the usable memory, at most 0.95; wins over bytes if > 0
  int64_t num_kv_blocks = 0;      // usable blocks, wins over both if > 0
  std::optional<DType> kv_dtype;  // unset: Backend::default_kv_dtype
  // Bytes of the host tier: evicted blocks and those of preempted requests. Unset: 4 GiB on cuda, else 0; 0 for
  // models with sliding windows, which cannot have one.
  std::optional<int64_t> host_kv_bytes;
  SchedulerOptions scheduler;
  bool append_forced_tokens = true;     // structured output: where one token is allowed it is not sampled
  int32_t max_queued_requests = 1024;   // waiting ones; beyond: kResourceExhausted
  int64_t max_queued_tokens = 1 << 20;  // prompt tokens of waiting requests; beyond: kResourceExhausted
  absl::Duration max_queue_wait = absl::InfiniteDuration();  // estimated wait; beyond: kResourceExhausted
  EvictionOptions eviction = {};                             // of the prefix cache
  // Share of the KV pool that cached blocks of one tenant may take, 0 .. 1; 1: no quota. The second has those of some
  // tenants by name, for which the first does not count. Nobody's blocks have none.
  double tenant_kv_quota = 1;
  std::vector<std::pair<std::string, double>> tenant_kv_quotas = {};
  int32_t num_kv_events = 0;  // of the prefix cache, that are kept for subscribers
  bool kv_integrity = false;  // checksum of what becomes findable, verify what is found, poison what is freed
  uint64_t seed = 0;          // keys the prefix cache and random weights
  absl::Duration step_timeout = absl::Seconds(60);  // a step that takes longer makes the engine unhealthy
  int32_t num_output_shards = 1;                    // output queues (detokenizer threads), [1, 16]
  // Record of all scheduling (scheduler/trace/README.md). Empty: none. The file is created; one that is there is
  // overwritten.
  std::string schedule_trace_path = {};
  // Where Engine::CreateTraceFile makes files. Empty: nowhere.
  std::string schedule_trace_dir = {};
  int64_t schedule_trace_max_bytes = int64_t{1} << 30;  // of a file, [4096, 2^62]
  // Called once a trace that ends before it is stopped, with the reason; on any thread. Null: nobody is told.
  std::function<void(const std::string& problem)> on_schedule_trace_end = nullptr;
  // Called once when the device has failed for good, on the engine's thread: every later step fails. Null: nobody is
  // told.
  std::function<void(const absl::Status& status)> on_device_failure = nullptr;
  double sim_time_scale = 1;  // sim only: 0 runs without waiting
};

}  // namespace quire
