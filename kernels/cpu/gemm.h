#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_kernels.h"

namespace quire {

// Working memory of linear layers, 64-byte aligned: a piece for each thread and one that all share. Grows and never
// shrinks, so nothing is allocated once the largest layer has run at the largest number of rows.
class GemmScratch {
 public:
  // At least that many bytes of unspecified contents. What was there before is lost and moves, so layers that are still
  // to run look it up when they do. kResourceExhausted, and nothing is kept.
  absl::Status Reserve(int num_threads, int64_t own_bytes, int64_t shared_bytes);

  std::byte* shared() const { return data_.as<std::byte>(); }
  std::byte* own(int thread) const { return data_.as<std::byte>() + shared_bytes_ + thread * own_bytes_; }

 private:
  Buffer data_;
  int64_t shared_bytes_ = 0;
  int64_t own_bytes_ = 0;  // of each thread
};

// What is done with the outputs of a linear layer at once, by the thread that made them.
struct LinearTail {
  struct Range {
    int64_t row_begin, row_end;
    int64_t begin, end;  // items
  };
  // Null: there is no tail, and items are tiles.
  void (*run)(const void* context, const Range& range) = nullptr;
  const void* context = nullptr;  // trivially copyable, in the program
  int64_t item_tiles = 1;         // of a part, which holds a whole number of items
  // An item is the same tiles of both parts of the weight, which are equally large.
  bool paired = false;
};

// out = x * weight^T (+ bias), or out += that; x normalised first (AddRmsNorm without delta) if there is a norm weight.
struct LinearLayer {
  const CpuPackedWeight* weight = nullptr;
  F32Matrix x;                         // [T, K], not changed
  const float* norm_weight = nullptr;  // f32 [K]
  float epsilon = 0;
  const float* bias = nullptr;  // f32 [N]
  F32Matrix out;                // [T, N]; may not overlap x
  bool add = false;
  LinearTail tail = {};
  double* seconds = nullptr;  // where the time is added, or null
};

// The kernels of one instruction set.
struct CpuKernels {
  const GemmKernels& gemm;
  const VectorKernels& vector;
};

// Adds the layer to the program: its outputs are split over the threads of the pool it will run on. Few inputs are
// normalised and quantised by each thread for itself, which is one loop; many by all together in a loop before. A row's
// bits depend on that row alone: not on T, the pool or the kernels. kResourceExhausted if the scratch cannot grow.
absl::Status AddLinear(const CpuKernels& kernels, int num_threads, const LinearLayer& layer, GemmScratch& scratch,
                       Program& program);

}  // namespace quire
