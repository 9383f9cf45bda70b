#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/simt.cuh"
#include "tests/simt/conformance_kernels.h"

namespace quire::simt {

__global__ void LdMatrixKernel(const uint16_t* values, uint32_t* out, int transposed) {
  SIMT_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x);
  auto* rows = reinterpret_cast<uint16_t*>(shared);
  for (int i = 0; i < 8; ++i) rows[lane * 8 + i] = values[lane * 8 + i];
  __syncwarp();
  uint32_t matrices[4];
  if (transposed != 0) {
    ptx::LdMatrix4Transposed(matrices, rows + lane * 8);
  } else {
    ptx::LdMatrix4(matrices, rows + lane * 8);
  }
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = matrices[i];
}

__device__ __forceinline__ uint32_t Pair(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

__global__ void MmaKernel(const uint16_t* a, const uint16_t* b, const float* c, float* d, int is_bf16) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  uint32_t fragment[4], column[2];
  float sums[4];
  for (int r = 0; r < 4; ++r) {
    const uint16_t* row = a + (g + 8 * (r & 1)) * 16 + 2 * t + 8 * (r >> 1);
    fragment[r] = Pair(row[0], row[1]);
    sums[r] = c[(g + 8 * (r >> 1)) * 8 + 2 * t + (r & 1)];
  }
  for (int r = 0; r < 2; ++r) {
    const int k = 2 * t + 8 * r;
    column[r] = Pair(b[k * 8 + g], b[(k + 1) * 8 + g]);
  }
  if (is_bf16 != 0) {
    ptx::MmaBf16(sums, fragment, column[0], column[1]);
  } else {
    ptx::MmaF16(sums, fragment, column[0], column[1]);
  }
  for (int r = 0; r < 4; ++r) d[(g + 8 * (r >> 1)) * 8 + 2 * t + (r & 1)] = sums[r];
}

template <int kPiece>
__global__ void CopyAsyncKernel(const unsigned char* from, const int* valid_bytes, unsigned char* out) {
  SIMT_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x);
  if (lane % 2 == 0) ptx::CopyAsync<kPiece>(shared + lane * kPiece, from + lane * kPiece, valid_bytes[lane]);
  ptx::CommitCopies();
  if (lane % 2 == 1) ptx::CopyAsync<kPiece>(shared + lane * kPiece, from + lane * kPiece, valid_bytes[lane]);
  ptx::CommitCopies();
  ptx::WaitCopies<1>();
  if (lane % 2 == 0) {
    for (int i = 0; i < kPiece; ++i) out[lane * kPiece + i] = shared[lane * kPiece + i];
  }
  ptx::WaitCopies<0>();
  __syncwarp();
  const int other = lane ^ 1;
  for (int i = 0; i < kPiece; ++i) out[(32 + other) * kPiece + i] = shared[other * kPiece + i];
}

__global__ void Exp2Kernel(const float* in, float* out, int count) {
  if (static_cast<int>(threadIdx.x) < count) out[threadIdx.x] = ptx::Exp2(in[threadIdx.x]);
}

__global__ void Log2Kernel(const float* in, float* out, int count) {
  if (static_cast<int>(threadIdx.x) < count) out[threadIdx.x] = ptx::Log2(in[threadIdx.x]);
}

__global__ void PackKernel(const float* in, uint32_t* bf16_out, uint32_t* f16_out, int pairs) {
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += 32) {
    bf16_out[i] = ptx::PackBf16(in[2 * i], in[2 * i + 1]);
    f16_out[i] = ptx::PackF16(in[2 * i], in[2 * i + 1]);
  }
}

__global__ void Unpack8Kernel(const uint32_t* bytes, uint32_t* e4m3_to_f16, uint32_t* int8_to_bf16, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) {
    e4m3_to_f16[i] = ptx::E4m3PairToF16(bytes[i]);
    int8_to_bf16[i] = ptx::Int8PairToBf16(bytes[i]);
  }
}

__global__ void ToE4m3Kernel(const float* in, uint8_t* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) out[i] = ptx::ToE4m3(in[i]);
}

__global__ void LoadStreamingKernel(const uint32_t* in, uint32_t* out, int pieces) {
  if (static_cast<int>(threadIdx.x) >= pieces) return;
  const uint4 piece = ptx::LoadStreaming16(in + threadIdx.x * 4);
  *reinterpret_cast<uint4*>(out + threadIdx.x * 4) = piece;
}

namespace {

LaunchConfig OneWarp(size_t shared_bytes = 0) {
  LaunchConfig config;
  config.block = dim3(32);
  config.shared_bytes = shared_bytes;
  return config;
}

}  // namespace

cudaError_t LaunchLdMatrix(const uint16_t* values, uint32_t* out, bool transposed) {
  return Launch(OneWarp(512), LdMatrixKernel, values, out, transposed ? 1 : 0);
}
cudaError_t LaunchMma(const uint16_t* a, const uint16_t* b, const float* c, float* d, bool is_bf16) {
  return Launch(OneWarp(), MmaKernel, a, b, c, d, is_bf16 ? 1 : 0);
}
cudaError_t LaunchCopyAsync(const unsigned char* from, const int* valid_bytes, unsigned char* out, int piece) {
  if (piece == 4) return Launch(OneWarp(128), CopyAsyncKernel<4>, from, valid_bytes, out);
  if (piece == 8) return Launch(OneWarp(256), CopyAsyncKernel<8>, from, valid_bytes, out);
  return Launch(OneWarp(512), CopyAsyncKernel<16>, from, valid_bytes, out);
}
cudaError_t LaunchExp2(const float* in, float* out, int count) { return Launch(OneWarp(), Exp2Kernel, in, out, count); }
cudaError_t LaunchLog2(const float* in, float* out, int count) { return Launch(OneWarp(), Log2Kernel, in, out, count); }
cudaError_t LaunchPack(const float* in, uint32_t* bf16_out, uint32_t* f16_out, int pairs) {
  return Launch(OneWarp(), PackKernel, in, bf16_out, f16_out, pairs);
}
cudaError_t LaunchUnpack8(const uint32_t* bytes, uint32_t* e4m3_to_f16, uint32_t* int8_to_bf16, int count) {
  return Launch(OneWarp(), Unpack8Kernel, bytes, e4m3_to_f16, int8_to_bf16, count);
}
cudaError_t LaunchToE4m3(const float* in, uint8_t* out, int count) {
  return Launch(OneWarp(), ToE4m3Kernel, in, out, count);
}
cudaError_t LaunchLoadStreaming(const uint32_t* in, uint32_t* out, int pieces) {
  return Launch(OneWarp(), LoadStreamingKernel, in, out, pieces);
}

}  // namespace quire::simt
