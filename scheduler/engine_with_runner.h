#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/config.h"
#include "model/model_runner.h"
#include "scheduler/engine.h"
#include "scheduler/engine_options.h"

namespace quire {

// Where an engine takes time from. Called from several threads.
struct EngineClock {
  std::function<absl::Time()> now = &absl::Now;      // of events and deadlines
  std::function<absl::Duration()> steady = nullptr;  // of step_timeout, from any origin; null: the monotonic clock
};

// CreateEngine around a runner that is there already: for tests, and the second half of CreateEngine itself. The pool
// is the runner's; model_path, device, block_size and what sizes the pool are not looked at.
// Errors as CreateEngine.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithRunner(const EngineOptions& options, const ModelConfig& config,
                                                               std::unique_ptr<ModelRunner> runner,
                                                               EngineClock clock = {});

}  // namespace quire
