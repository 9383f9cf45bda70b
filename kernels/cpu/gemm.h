#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/thread_pool.h"

namespace quire {

// Working memory of CpuLinear, 64-byte aligned. Grows and never shrinks, so nothing is allocated once the largest layer
// has run at the largest number of rows.
class GemmScratch {
 public:
  // At least `bytes` of unspecified contents, valid until the next call. kResourceExhausted, and nothing is kept.
  absl::StatusOr<std::byte*> Reserve(int64_t bytes);

 private:
  Buffer data_;
};

// out = x * weight^T (+ bias). x: [T, K], out: [T, N], bias: f32 [N] or null. out may not overlap x. Quantises x once
// for all parts of the weight, then splits the outputs over the pool. A row's bits depend on that row alone: not on T,
// the pool or the kernels. One caller at a time for each pool and scratch. kResourceExhausted if the scratch cannot
// grow.
//
// `next_shares`, if not empty, are the ShareStarts of the weight that is likely to come next: threads that end with
// this one begin to fetch it. A wrong guess costs time only, and the memory need not be there any more.
absl::Status CpuLinear(const GemmKernels& kernels, ThreadPool& pool, const CpuPackedWeight& weight,
                       absl::Span<const std::byte* const> next_shares, ConstF32Matrix x, const float* bias,
                       F32Matrix out, GemmScratch& scratch);

// Where each thread of the pool begins to read the weight.
void FillShareStarts(const CpuPackedWeight& weight, const ThreadPool& pool, std::vector<const std::byte*>* starts);

}  // namespace quire
