#pragma once

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/base/half.h"
#include "kernels/cuda/kv_cache.cuh"

// The stored forms of K and V on the host: a definition of each, one value at a time.
namespace quire::testing {

inline constexpr cuda::KvStorage kAllStorages[] = {cuda::KvStorage::kF16, cuda::KvStorage::kBf16,
                                                   cuda::KvStorage::kE4m3, cuda::KvStorage::kInt8};

inline const char* NameOf(cuda::KvStorage storage) {
  static const char* const names[] = {"f16", "bf16", "e4m3", "int8"};
  return names[static_cast<int>(storage)];
}

// A row of K or V of a cache whose first byte is `bytes` (kv.data is not looked at).
struct KvRow {
  unsigned char* values;
  float* scale;  // of int8
};
inline KvRow RowOf(cuda::KvCacheView kv, unsigned char* bytes, int32_t slot_id, int32_t kv_head, bool is_v) {
  kv.data = bytes;
  unsigned char* run = kv.run(slot_id / kv.block_size, kv_head);
  const int32_t slot = slot_id % kv.block_size;
  return {is_v ? kv.v_row(run, slot) : kv.k_row(run, slot), kv.k_scales(run) + (is_v ? kv.block_size : 0) + slot};
}

inline std::vector<float> LoadRow(const cuda::KvCacheView& kv, const KvRow& row, bool is_v) {
  std::vector<float> values(kv.head_dim);
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    uint16_t bits;
    std::memcpy(&bits, row.values + d * std::min<int64_t>(kv.element_bytes(), 2), kv.element_bytes());
    switch (kv.storage) {
      case cuda::KvStorage::kF16:
        values[d] = F16ToF32(bits);
        break;
      case cuda::KvStorage::kBf16:
        values[d] = Bf16ToF32(bits);
        break;
      case cuda::KvStorage::kE4m3: {
        __nv_fp8_e4m3 value;
        value.__x = row.values[d];
        values[d] = static_cast<float>(value) * (is_v ? kv.v_scale : kv.k_scale);
        break;
      }
      case cuda::KvStorage::kInt8:
        values[d] = static_cast<float>(static_cast<int8_t>(row.values[d])) * *row.scale;
        break;
    }
  }
  return values;
}

inline void StoreRow(const cuda::KvCacheView& kv, const KvRow& row, bool is_v, const float* values) {
  float absmax = 0;
  for (int32_t d = 0; d < kv.head_dim; ++d) absmax = std::max(absmax, std::abs(values[d]));
  if (kv.storage == cuda::KvStorage::kInt8) *row.scale = absmax / 127;
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    uint16_t bits = 0;
    switch (kv.storage) {
      case cuda::KvStorage::kF16:
        bits = F32ToF16(values[d]);
        break;
      case cuda::KvStorage::kBf16:
        bits = F32ToBf16(values[d]);
        break;
      case cuda::KvStorage::kE4m3:
        row.values[d] = __nv_fp8_e4m3(values[d] / (is_v ? kv.v_scale : kv.k_scale)).__x;
        break;
      case cuda::KvStorage::kInt8:
        row.values[d] =
            static_cast<unsigned char>(static_cast<int8_t>(absmax > 0 ? std::nearbyint(values[d] * 127 / absmax) : 0));
        break;
    }
    if (kv.element_bytes() == 2) std::memcpy(row.values + 2 * d, &bits, 2);
  }
}

// The largest difference of a stored value from what was given.
inline double StoreError(const cuda::KvCacheView& kv, bool is_v, double value, double absmax) {
  switch (kv.storage) {
    case cuda::KvStorage::kF16:
      return std::abs(value) * 0x1p-11 + 0x1p-24;
    case cuda::KvStorage::kBf16:
      return std::abs(value) * 0x1p-8;
    case cuda::KvStorage::kE4m3:
      return std::abs(value) * 0x1p-4 + (is_v ? kv.v_scale : kv.k_scale) * 0x1p-10;
    case cuda::KvStorage::kInt8:
      return absmax / 127 * 0.501;
  }
  return 0;
}

}  // namespace quire::testing
