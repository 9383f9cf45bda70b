#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/factory.h"
#include "model/config.h"
#include "model/sim_runner.h"
#include "scheduler/engine.h"
#include "scheduler/engine_impl.h"
#include "scheduler/engine_sizing.h"
#include "scheduler/engine_with_runner.h"

namespace quire {
namespace {

int64_t KvBytesPerToken(const ModelConfig& config, DType dtype) {
  return int64_t{2} * config.num_layers * config.num_kv_heads * config.head_dim * SizeOf(dtype);
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeSimRunner(const EngineOptions& options, const ModelConfig& config) {
  QUIRE_ASSIGN_OR_RETURN(const EngineSizes sizes,
                         SizeEngine(options, config, KvBytesPerToken(config, DType::kF16), UsableMemoryBytes()));
  return CreateSimRunner({.config = config,
                          .num_kv_blocks = sizes.num_kv_blocks + 1,
                          .block_size = sizes.block_size,
                          .time_scale = options.sim_time_scale});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithRunner(const EngineOptions& options, const ModelConfig& config,
                                                               std::unique_ptr<ModelRunner> runner, EngineClock clock) {
  EngineOptions fixed = options;
  fixed.block_size = runner->block_size();
  fixed.num_kv_blocks = runner->num_kv_blocks() - 1;
  QUIRE_RETURN_IF_ERROR(ValidateEngineOptions(fixed));
  QUIRE_ASSIGN_OR_RETURN(const EngineSizes sizes, SizeEngine(fixed, config, runner->kv_bytes_per_token(), 0));
  EngineInfo info;
  info.config = config;
  info.device = runner->Describe();
  info.max_model_len = sizes.max_model_len;
  info.block_size = sizes.block_size;
  info.num_kv_blocks = sizes.num_kv_blocks;
  info.kv_bytes_per_token = runner->kv_bytes_per_token();
  info.weight_bytes_per_step = runner->weight_bytes_per_step();
  info.key_context.process_seed = options.seed;
  info.key_context.weights_version = absl::StrCat(config.architecture, " ", options.model_path);
  return std::make_unique<EngineImpl>(fixed, std::move(info), std::move(runner), std::move(clock));
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options) {
  QUIRE_RETURN_IF_ERROR(ValidateEngineOptions(options));
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model_path));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner, MakeSimRunner(options, config));
  return CreateEngineWithRunner(options, config, std::move(runner));
}

}  // namespace quire
