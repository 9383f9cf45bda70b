#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// One kernel of one warp a wrapper of kernels/cuda/ptx.cuh: plain matrices in, plain matrices out, so that the layout
// of fragments is the kernel's claim and the result is arithmetic. All pointers are device memory.
namespace quire::simt {

// values: [32][8] of 16 bits, four 8x8 matrices of which lane l names row l % 8 of matrix l / 8. out: [32][4], what
// each lane got.
cudaError_t LaunchLdMatrix(const uint16_t* values, uint32_t* out, bool transposed);
// d [16][8] = c + a [16][16] * b [16][8]. a, b: bf16 or f16 bits.
cudaError_t LaunchMma(const uint16_t* a, const uint16_t* b, const float* c, float* d, bool is_bf16);
// Copies in pieces of `piece` (4, 8, 16) bytes, 32 of them: piece i has valid_bytes[i] from `from`, the rest zeros. Two
// groups: pieces of even lanes first; out[0 ..] the even ones after waiting for one group, then all.
cudaError_t LaunchCopyAsync(const unsigned char* from, const int* valid_bytes, unsigned char* out, int piece);
// out[i] = what the wrappers make of in[i], i < count.
cudaError_t LaunchExp2(const float* in, float* out, int count);
cudaError_t LaunchLog2(const float* in, float* out, int count);
// Pairs (in[2 i], in[2 i + 1]).
cudaError_t LaunchPack(const float* in, uint32_t* bf16_out, uint32_t* f16_out, int pairs);
// bytes: pairs in the low 16 bits.
cudaError_t LaunchUnpack8(const uint32_t* bytes, uint32_t* e4m3_to_f16, uint32_t* int8_to_bf16, int count);
cudaError_t LaunchToE4m3(const float* in, uint8_t* out, int count);
// 16-byte pieces.
cudaError_t LaunchLoadStreaming(const uint32_t* in, uint32_t* out, int pieces);

// sm_90a. c [m][n] = a [m][k] * b [n][k]^T of bf16 by TMA, an mbarrier ring with a producer, and wgmma; 64x64 tiles.
// False: the tensor maps were refused.
bool LaunchSm90Gemm(const uint16_t* a, const uint16_t* b, float* c, int m, int n, int k, cudaError_t* error);

}  // namespace quire::simt
