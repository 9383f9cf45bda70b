#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status_macros.h"
#include "kernels/factory.h"
#include "kernels/host_limits.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/sim_runner.h"
#include "model/transformer_runner.h"
#include "scheduler/engine.h"
#include "scheduler/engine_impl.h"
#include "scheduler/engine_sizing.h"
#include "scheduler/engine_with_runner.h"

namespace quire {
namespace {

// What a model's files need that is not built is a matter of the files, not of the device.
absl::Status OfModelFiles(absl::Status status) {
  return absl::IsUnimplemented(status) ? absl::InvalidArgumentError(status.message()) : status;
}

constexpr int64_t kAnyMemory = std::numeric_limits<int64_t>::max();

absl::StatusOr<EngineSizes> Size(const EngineOptions& options, const ModelConfig& config, DType kv_dtype,
                                 int64_t memory_bytes, int64_t host_memory_bytes) {
  const LayerGroups groups = GroupLayers(config);
  return SizeEngine(options, config, KvBytesPerBlock(config, groups, /*block_size=*/1, kv_dtype), memory_bytes,
                    groups.windows(), host_memory_bytes);
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeSimRunner(const EngineOptions& options, const ModelConfig& config) {
  // Nothing is stored: a pool of a given size may be that of any machine.
  const bool given = options.kv_cache_bytes != 0 || options.num_kv_blocks != 0;
  const int64_t memory = given ? kAnyMemory : UsableMemoryBytes();
  QUIRE_ASSIGN_OR_RETURN(const EngineSizes sizes, Size(options, config, DType::kF16, memory, memory));
  return CreateSimRunner({.config = config,
                          .num_kv_blocks = sizes.num_kv_blocks + 1,
                          .block_size = sizes.block_size,
                          .num_host_blocks = sizes.num_host_blocks,
                          .group_windows = GroupLayers(config).windows(),
                          .time_scale = options.sim_time_scale});
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeTransformerRunner(const EngineOptions& options,
                                                                   const ModelConfig& config,
                                                                   std::unique_ptr<Backend> backend) {
  const DType kv_dtype = options.kv_dtype.value_or(backend->default_kv_dtype(config.dtype));
  if (!backend->supports_kv_dtype(kv_dtype)) {
    std::string built;
    for (const DType type : kKvDTypes) {
      if (backend->supports_kv_dtype(type)) absl::StrAppend(&built, built.empty() ? "" : ", ", std::string(Name(type)));
    }
    return absl::FailedPreconditionError(absl::StrCat("--kv-cache-dtype ", std::string(Name(kv_dtype)),
                                                      " is not built for device ", std::string(Name(backend->kind())),
                                                      ", which has ", built));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::optional<int64_t> device_bytes, backend->FreeBytes());
  const int64_t host_bytes = UsableMemoryBytes();
  QUIRE_ASSIGN_OR_RETURN(const EngineSizes sizes,
                         Size(options, config, kv_dtype, device_bytes.value_or(host_bytes), host_bytes));
  TransformerRunnerOptions runner;
  runner.model_path = options.model_path;
  runner.backend = std::move(backend);
  runner.block_size = sizes.block_size;
  runner.num_kv_blocks = sizes.num_kv_blocks + 1;
  runner.num_host_blocks = sizes.num_host_blocks;
  runner.check_host_copies = options.kv_integrity;
  runner.max_num_batched_tokens = options.scheduler.max_num_batched_tokens;
  runner.max_num_seqs = options.scheduler.max_num_seqs;
  runner.kv_dtype = kv_dtype;
  runner.group_layers = true;
  runner.random_weights = options.random_weights;
  runner.seed = options.seed;
  auto made = CreateTransformerRunner(std::move(runner));
  if (!made.ok()) return OfModelFiles(made.status());
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithRunner(const EngineOptions& options, const ModelConfig& config,
                                                               std::unique_ptr<ModelRunner> runner, EngineClock clock) {
  EngineOptions fixed = options;
  fixed.block_size = runner->block_size();
  fixed.memory_fraction = 0;
  fixed.num_kv_blocks = runner->num_kv_blocks() - 1;
  const int64_t block_bytes = std::max<int64_t>(1, runner->kv_bytes_per_token()) * fixed.block_size;
  fixed.host_kv_bytes = runner->num_host_blocks() * block_bytes;
  QUIRE_RETURN_IF_ERROR(ValidateEngineOptions(fixed));
  QUIRE_ASSIGN_OR_RETURN(const EngineSizes sizes,
                         SizeEngine(fixed, config, runner->kv_bytes_per_token(), kAnyMemory, runner->group_windows()));
  EngineInfo info;
  info.config = config;
  info.device = runner->Describe();
  info.max_model_len = sizes.max_model_len;
  info.block_size = sizes.block_size;
  info.num_kv_blocks = sizes.num_kv_blocks;
  info.num_host_blocks = sizes.num_host_blocks;
  info.kv_bytes_per_token = runner->kv_bytes_per_token();
  info.weight_bytes_per_step = runner->weight_bytes_per_step();
  info.prefix_cache_enabled = options.scheduler.enable_prefix_caching;
  info.num_kv_events = info.prefix_cache_enabled ? options.num_kv_events : 0;
  info.key_context.process_seed = options.seed;
  info.key_context.weights_version = absl::StrCat(config.architecture, " ", options.model_path);
  auto engine = std::make_unique<EngineImpl>(fixed, std::move(info), std::move(runner), std::move(clock));
  QUIRE_RETURN_IF_ERROR(engine->StartTrace());
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options) {
  QUIRE_RETURN_IF_ERROR(ValidateEngineOptions(options));
  std::unique_ptr<Backend> backend;
  if (options.device != DeviceKind::kSim) {
    QUIRE_ASSIGN_OR_RETURN(backend, CreateBackend({.kind = options.device,
                                                   .cpu_isa = options.cpu_isa,
                                                   .device_index = options.device_index,
                                                   .deterministic = options.deterministic,
                                                   .num_threads = options.num_threads}));
  }
  absl::StatusOr<ModelConfig> config = LoadModelConfig(options.model_path);
  if (!config.ok()) return OfModelFiles(config.status());
  auto runner = backend == nullptr ? MakeSimRunner(options, *config)
                                   : MakeTransformerRunner(options, *config, std::move(backend));
  if (!runner.ok()) return runner.status();
  return CreateEngineWithRunner(options, *config, *std::move(runner));
}

}  // namespace quire
