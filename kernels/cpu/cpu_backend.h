#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/factory.h"

namespace quire {

// The fast CPU backend. `isa` is one of AvailableCpuIsas(); num_threads in [1, 256]. All instruction sets, numbers of
// threads, batches and cache layouts give the same bits: kernels/README.md. KV cache in f16 (default) or f32.
std::unique_ptr<Backend> CreateCpuBackend(CpuIsa isa, int num_threads);

}  // namespace quire
