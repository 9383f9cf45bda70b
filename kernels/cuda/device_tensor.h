#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace quire::cuda {

// A row-major matrix of activations in device memory, not owned. The element type (f32, f16 or bf16) is a run-time
// value: a branch that all threads take alike costs less than a kernel a type.
struct DeviceTensor {
  void* data = nullptr;
  DType dtype = DType::kBf16;
  int64_t stride = 0;  // elements from row to row
};

}  // namespace quire::cuda
