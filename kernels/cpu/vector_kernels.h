#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

// What passes between the portable part of the CPU ops (other than linear layers: gemm_kernels.h) and their
// instruction-set units: plain data and pointers to functions, nothing that the linker could merge between units with
// different flags. All pointers f32 unless said, row-major; nothing is checked here.
namespace quire {

// Keys of one softmax chunk, at absolute positions: part of the arithmetic (kernels/README.md), not a tuning value.
inline constexpr int32_t kKeyChunk = 256;
// Most (row, query head) pairs of one task.
inline constexpr int32_t kMaxTaskQueries = 48;
// Most query rows of one task.
inline constexpr int32_t kMaxTaskRows = 16;

// Attention of `num_rows` consecutive rows of one sequence, or of rows of several that share these keys, with
// `num_heads` query heads that share one KV head. A query is one (row, head) pair, index row * num_heads + head.
struct AttentionTask {
  const float* q = nullptr;  // first row, first head; [row * q_stride + head * head_dim + i]
  // Not null: row r is the batch's row rows[r], q that of row 0. They see every key of the chunks; there are partials,
  // no window and no slopes.
  const int32_t* rows = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;  // the same shape
  int64_t out_stride = 0;
  float* logsumexp = nullptr;  // [row * logsumexp_stride + head], or null
  int64_t logsumexp_stride = 0;
  int32_t num_rows = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  int32_t first_position = 0;  // of row 0; row r is at first_position + r

  const std::byte* kv = nullptr;  // this head's run of block 0 (kernels/base/kv_layout.h)
  DType kv_dtype = DType::kF16;   // f32, f16, bf16 or int8
  // Bytes from a block to the next, from a row to the next, from a run to its first V row, and to the scales of K and
  // of V, if it has any.
  int64_t block_stride = 0;
  int64_t row_stride = 0;
  int64_t values_at = 0;
  int64_t key_scales_at = 0;
  int64_t value_scales_at = 0;
  int32_t block_size = 0;
  const int32_t* block_table = nullptr;
  int32_t chunk_begin = 0;  // chunks [chunk_begin, chunk_end) of kKeyChunk keys are looked at
  int32_t chunk_end = 0;

  float scale = 0;
  float softcap = 0;              // 0: off
  int32_t window = 0;             // 0: off
  const float* sinks = nullptr;   // [num_heads] or null
  const float* slopes = nullptr;  // [num_heads] or null
  float* scratch = nullptr;       // AttentionScratchFloats(head_dim), 64-byte aligned
  // [chunk of all][query][PartialFloats(head_dim)]; not null: the chunks' results go there instead of to `out`.
  float* partials = nullptr;
  // Of a task to merge whose first chunks are those of a shared prefix: their results of query 0, `shared_stride`
  // floats from a chunk to the next.
  const float* shared_partials = nullptr;
  int64_t shared_stride = 0;
  int32_t shared_chunks = 0;
};

// head_dim rounded up to whole vectors.
[[gnu::always_inline]] constexpr int64_t PaddedHeadDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
// One query's result of one chunk: sum of weights * V, then 16 floats with maximum and sum in the first two.
[[gnu::always_inline]] constexpr int64_t PartialFloats(int64_t head_dim) { return PaddedHeadDim(head_dim) + 16; }
// Queries, scores, tile of 16 keys or values, result of a chunk, result of all so far, scales of a chunk's K and V.
[[gnu::always_inline]] constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  return kMaxTaskQueries * (PaddedHeadDim(head_dim) + kKeyChunk + 2 * PartialFloats(head_dim)) +
         16 * PaddedHeadDim(head_dim) + 2 * kKeyChunk;
}

struct VectorKernels {
  const char* name = nullptr;

  // residual[n] += delta[n] unless delta is null; out[n] = residual / rms * weight.
  void (*add_rms_norm)(float* residual, const float* delta, const float* weight, float epsilon, float* out,
                       int64_t n) = nullptr;
  // Rotates pairs (i, half + i) of one head by cos_sin[i], cos_sin[half + i].
  void (*rotate)(const float* cos_sin, int64_t half, float* head) = nullptr;
  // f16, saturating.
  void (*store_f16)(const float* x, uint16_t* out, int64_t n) = nullptr;
  void (*store_bf16)(const float* x, uint16_t* out, int64_t n) = nullptr;
  // A row and its scale: kernels/base/kv_layout.h has the rule.
  void (*store_int8)(const float* x, int8_t* out, float* scale, int64_t n) = nullptr;
  // out[n] = silu(gate[n]) * up[n].
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n) = nullptr;
  // Runs the task's chunks.
  void (*attend)(const AttentionTask& task) = nullptr;
  // Merges the task's partials in ascending order of chunks into `out`.
  void (*merge_partials)(const AttentionTask& task) = nullptr;
};

// The scalar twin: the same bits, portable code.
const VectorKernels& VectorKernelsScalar();
// Need AVX2, FMA, F16C.
const VectorKernels& VectorKernelsAvx2();
// Needs AVX512F, BW, VL and DQ beside those.
const VectorKernels& VectorKernelsAvx512();

}  // namespace quire
