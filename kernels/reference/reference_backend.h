#pragma once

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace quire {

// The oracle: plain f32 for the baseline instruction set, one function an op, every sum in ascending order and never
// fused; exponentials and the sums of norms in double. KV cache in f32. num_threads in [1, 256].
std::unique_ptr<Backend> CreateReferenceBackend(int num_threads);

}  // namespace quire
