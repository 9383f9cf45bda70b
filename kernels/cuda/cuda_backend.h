#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace quire {

struct CudaBackendOptions {
  int32_t device_index = 0;
  bool deterministic = false;  // a row's bits depend on its sequence alone
  int num_threads = 1;         // that sample on the host
};

// The backend on one GPU. kUnavailable saying what is missing.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace quire
