// RoPE and the store into the paged cache, against kernels/reference and, for the stored forms, their definitions.
#include "kernels/cuda/rope_store.cuh"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/kernel_test.h"
#include "tests/simt/kv_values.h"

namespace quire::cuda {
namespace {

using simt::DeviceArray;
using testing::DeviceMatrix;
using testing::RandomValues;
using testing::Rounded;
using testing::ToleranceOf;

struct Case {
  int32_t num_heads, num_kv_heads, head_dim, rotary_dim, block_size;
  DType type;
};

class RopeStoreTest : public testing::KernelTest {
 protected:
  // K and V of the slots are those of `qkv` within the storage's error; every other slot is as it was.
  static void CheckCache(const KvCacheView& kv, std::vector<unsigned char> cache, const std::vector<int32_t>& slots,
                         const std::vector<float>& qkv, const Case& c) {
    const int32_t heads = c.num_heads + 2 * c.num_kv_heads, dim = c.head_dim;
    for (size_t t = 0; t < slots.size(); ++t) {
      for (int32_t h = 0; h < 2 * c.num_kv_heads; ++h) {
        const bool is_v = h >= c.num_kv_heads;
        const float* given = qkv.data() + (static_cast<int64_t>(t) * heads + c.num_heads + h) * dim;
        double absmax = 0;
        for (int32_t d = 0; d < dim; ++d) absmax = std::max(absmax, std::abs(double{given[d]}));
        const testing::KvRow row = testing::RowOf(kv, cache.data(), slots[t], h % c.num_kv_heads, is_v);
        const std::vector<float> stored = testing::LoadRow(kv, row, is_v);
        // The device's own rotation may differ in its last bits.
        for (int32_t d = 0; d < dim; ++d) {
          ASSERT_LE(std::abs(double{stored[d]} - given[d]),
                    testing::StoreError(kv, is_v, given[d], absmax) * 1.01 + ToleranceOf(c.type) * absmax * 0.01 + 1e-5)
              << "token " << t << " head " << h << " dimension " << d;
        }
        std::memset(row.values, 0xff, kv.row_bytes());
        if (kv.storage == KvStorage::kInt8) std::memset(row.scale, 0xff, sizeof(float));
      }
    }
    EXPECT_TRUE(std::all_of(cache.begin(), cache.end(), [](unsigned char byte) { return byte == 0xff; }));
  }
};

// One head, more than a block's warps, odd numbers, partial and no rotation, the smallest and largest sizes.
const Case kCases[] = {{1, 1, 4, 4, 16, DType::kF32},    {2, 1, 64, 64, 32, DType::kBf16},
                       {3, 3, 80, 20, 16, DType::kF16},  {7, 1, 96, 96, 64, DType::kBf16},
                       {4, 2, 256, 64, 16, DType::kF16}, {2, 2, 20, 0, 16, DType::kF32},
                       {5, 5, 8, 2, 32, DType::kBf16}};

TEST_F(RopeStoreTest, EveryStorage) {
  const int32_t tokens = 5, blocks = 4;
  for (const Case& c : kCases) {
    const int32_t heads = c.num_heads + 2 * c.num_kv_heads;
    const std::vector<float> qkv = Rounded(c.type, RandomValues(tokens * heads * c.head_dim, 1));
    std::vector<float> cos_sin(tokens * c.rotary_dim);
    for (size_t i = 0; i < cos_sin.size(); ++i) cos_sin[i] = static_cast<float>(std::cos(0.1 * static_cast<double>(i)));
    std::vector<int32_t> slots(blocks * c.block_size);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937(3));
    slots.resize(tokens);

    std::vector<float> rotated = qkv, cache(int64_t{blocks} * c.num_kv_heads * 2 * c.block_size * c.head_dim);
    ASSERT_TRUE(
        reference()
            .RopeAndStoreKv({.qkv = F32Matrix(rotated.data(), tokens, heads * c.head_dim),
                             .num_heads = c.num_heads,
                             .cos_sin = F32Matrix(cos_sin.data(), tokens, c.rotary_dim),
                             .slot_mapping = slots,
                             .kv = {cache.data(), DType::kF32, blocks, c.block_size, c.num_kv_heads, c.head_dim}})
            .ok());
    for (const KvStorage storage : testing::kAllStorages) {
      SCOPED_TRACE(std::to_string(c.head_dim) + " " + testing::NameOf(storage));
      ForEachSchedule([&] {
        KvCacheView kv{nullptr, storage, c.block_size, c.num_kv_heads, c.head_dim, 0.02f, 0.03f};
        const DeviceArray<unsigned char> device_cache(blocks * kv.block_bytes());
        kv.data = device_cache.data();
        DeviceMatrix device_qkv(c.type, tokens, heads * c.head_dim, qkv, 8);
        const DeviceArray<float> device_cos_sin(cos_sin);
        const DeviceArray<int32_t> device_slots(slots);
        ASSERT_EQ(LaunchRopeStore({.qkv = device_qkv.view(),
                                   .cos_sin = device_cos_sin.data(),
                                   .slots = device_slots.data(),
                                   .kv = kv,
                                   .tokens = tokens,
                                   .num_heads = c.num_heads,
                                   .rotary_dim = c.rotary_dim},
                                  nullptr),
                  cudaSuccess);
        ExpectNear(device_qkv.Download(), rotated, ToleranceOf(c.type));
        CheckCache(kv, device_cache.Download(), slots, rotated, c);
      });
    }
  }
}

// What has no place in the stored form: an f16 cache saturates, NaN stays visible, a negative slot is not stored.
TEST_F(RopeStoreTest, SpecialValues) {
  const int32_t dim = 8;
  const std::vector<float> k = {1e6f, -1e6f, 0, 1, NAN, INFINITY, 2, 3}, v(dim, 0.0f);
  std::vector<float> qkv;
  for (int token = 0; token < 2; ++token) {
    qkv.insert(qkv.end(), dim, 1.0f);
    qkv.insert(qkv.end(), k.begin(), k.end());
    qkv.insert(qkv.end(), v.begin(), v.end());
  }
  for (const KvStorage storage : {KvStorage::kF16, KvStorage::kInt8}) {
    KvCacheView kv{nullptr, storage, 16, 1, dim};
    const DeviceArray<unsigned char> device_cache(kv.block_bytes());
    kv.data = device_cache.data();
    DeviceMatrix device_qkv(DType::kF32, 2, 3 * dim, qkv);
    const DeviceArray<int32_t> slots(std::vector<int32_t>{-1, 3});
    ASSERT_EQ(LaunchRopeStore({.qkv = device_qkv.view(), .slots = slots.data(), .kv = kv, .tokens = 2, .num_heads = 1},
                              nullptr),
              cudaSuccess);
    std::vector<unsigned char> cache = device_cache.Download();
    const std::vector<float> stored_k = testing::LoadRow(kv, testing::RowOf(kv, cache.data(), 3, 0, false), false);
    const std::vector<float> stored_v = testing::LoadRow(kv, testing::RowOf(kv, cache.data(), 3, 0, true), true);
    EXPECT_EQ(stored_v, v);
    EXPECT_TRUE(std::isnan(stored_k[4]));
    if (storage == KvStorage::kF16) {
      EXPECT_EQ(stored_k[0], 65504);
      EXPECT_EQ(stored_k[1], -65504);
      EXPECT_EQ(stored_k[7], 3);
    }
    EXPECT_EQ(cache[0], 0xff);
  }
}

}  // namespace
}  // namespace quire::cuda
