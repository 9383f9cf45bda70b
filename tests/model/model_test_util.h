#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/factory.h"
#include "model/transformer_runner.h"

// Runners for tests of models.
namespace quire::testing {

// A backend that runs models here, and how far its arithmetic may be from the oracle.
struct TestBackend {
  std::string name;  // "reference", "cpu_avx2"
  BackendOptions options;
};

// Every instruction set of the CPU backend that this machine has, the scalar twin first and the fastest last, which
// runs on two threads. Empty if the backend is not compiled in.
inline std::vector<TestBackend> CpuBackends() {
  std::vector<TestBackend> backends;
  for (CpuIsa isa : AvailableCpuIsas()) {
    const BackendOptions options = {.kind = DeviceKind::kCpu, .cpu_isa = isa, .num_threads = 1};
    if (absl::IsUnimplemented(CreateBackend(options).status())) continue;
    backends.push_back({"cpu_" + std::string(Name(isa)), options});
  }
  if (!backends.empty()) backends.back().options.num_threads = 2;
  return backends;
}

// The reference backend and the CPU backend as it runs by default.
inline std::vector<TestBackend> TestBackends() {
  std::vector<TestBackend> backends = {{"reference", {.kind = DeviceKind::kReference, .num_threads = 1}}};
  if (!CpuBackends().empty()) backends.push_back({"cpu", {.kind = DeviceKind::kCpu, .num_threads = 1}});
  return backends;
}

struct RunnerShape {
  int32_t block_size = 16;
  int32_t num_kv_tokens = 4096;
  int32_t max_num_batched_tokens = 1024;
  bool group_layers = false;
  bool random_weights = false;
  std::optional<DType> kv_dtype = {};  // unset: Backend::default_kv_dtype
};

inline absl::StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(const std::string& path, const BackendOptions& backend,
                                                               const RunnerShape& shape = {}) {
  TransformerRunnerOptions options;
  options.model_path = path;
  auto created = CreateBackend(backend);
  if (!created.ok()) return created.status();
  options.backend = *std::move(created);
  options.block_size = shape.block_size;
  options.num_kv_blocks = shape.num_kv_tokens / shape.block_size + 1;
  options.max_num_batched_tokens = shape.max_num_batched_tokens;
  options.group_layers = shape.group_layers;
  options.random_weights = shape.random_weights;
  options.kv_dtype = shape.kv_dtype;
  return CreateTransformerRunner(std::move(options));
}

}  // namespace quire::testing
