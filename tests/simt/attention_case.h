#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/kernel_test.h"
#include "tests/simt/kv_values.h"

// A batch of sequences in a paged cache, on the device and for the reference backend, which sees the values as stored.
namespace quire::testing {

struct AttentionCase {
  std::string name;
  int32_t num_heads, num_kv_heads, head_dim, block_size;
  std::vector<int32_t> contexts;
  std::vector<int32_t> q_lens = {};  // empty: one row a sequence
  int32_t window = 0;
  float softcap = 0;
  bool sinks = false, alibi = false;
  int32_t shared_prefix = 0;  // tokens, whole blocks, that all sequences but the first take from the first one's blocks
  DType type = DType::kF32;   // of q and out
};

struct AttentionValues {
  std::vector<float> out, logsumexp;
};

// Slots that hold no token are NaN, table entries behind the context name no block, those that have slid out of the
// window a block of NaN.
class AttentionData {
 public:
  AttentionData(const AttentionCase& c, cuda::KvStorage storage, uint32_t seed)
      : c_(c), kv_{nullptr, storage, c.block_size, c.num_kv_heads, c.head_dim, 0.02f, 0.03f} {
    cu_q_lens_.push_back(0);
    int32_t longest = 0;
    for (size_t s = 0; s < c.contexts.size(); ++s) {
      cu_q_lens_.push_back(cu_q_lens_.back() + (c.q_lens.empty() ? 1 : c.q_lens[s]));
      longest = std::max(longest, c.contexts[s]);
    }
    stride_ = (longest + c.block_size - 1) / c.block_size + 1;
    num_blocks_ = stride_ * static_cast<int64_t>(c.contexts.size()) + 2;
    FillCache(seed);
    // Rounded to the type of q and to what the tensor cores take, so that the reference sees the same queries.
    const bool bf16 = storage == cuda::KvStorage::kBf16 || storage == cuda::KvStorage::kInt8;
    const size_t size = static_cast<size_t>(cu_q_lens_.back()) * c.num_heads * c.head_dim;
    q_ = Rounded(bf16 ? DType::kBf16 : DType::kF16, Rounded(c.type, RandomValues(size, seed + 1)));
    scale_ = 1.2f / std::sqrt(static_cast<float>(c.head_dim));
    if (c.sinks) sinks_ = RandomValues(c.num_heads, seed + 2);
    if (c.alibi) {
      for (int32_t h = 0; h < c.num_heads; ++h) slopes_.push_back(0.5f / static_cast<float>(h + 1));
    }
  }

  AttentionValues Reference(Ops& ops) {
    const int64_t rows = cu_q_lens_.back(), width = int64_t{c_.num_heads} * c_.head_dim;
    AttentionValues result{std::vector<float>(rows * width), std::vector<float>(rows * c_.num_heads)};
    std::vector<int32_t> tables = tables_;
    const auto plan = ops.CreateAttentionPlan();
    EXPECT_TRUE(ops.PlanAttention({cu_q_lens_, c_.contexts, tables, stride_}, *plan).ok());
    const absl::Status done = ops.PagedAttention(
        {.plan = plan.get(),
         .q = F32Matrix(q_.data(), rows, width),
         .kv = {reference_.data(), DType::kF32, num_blocks_, c_.block_size, c_.num_kv_heads, c_.head_dim},
         .num_heads = c_.num_heads,
         .scale = scale_,
         .window = c_.window,
         .logit_softcap = c_.softcap,
         .sinks = c_.sinks ? sinks_.data() : nullptr,
         .alibi_slopes = c_.alibi ? slopes_.data() : nullptr,
         .out = F32Matrix(result.out.data(), rows, width),
         .logsumexp = F32Matrix(result.logsumexp.data(), rows, c_.num_heads)});
    EXPECT_TRUE(done.ok()) << done;
    return result;
  }

  const cuda::KvCacheView& kv() const { return kv_; }
  const std::vector<unsigned char>& cache() const { return cache_; }
  const std::vector<int32_t>& tables() const { return tables_; }
  int64_t table_stride() const { return stride_; }
  const std::vector<int32_t>& cu_q_lens() const { return cu_q_lens_; }
  const std::vector<float>& q() const { return q_; }
  float scale() const { return scale_; }
  const std::vector<float>& sinks() const { return sinks_; }
  const std::vector<float>& slopes() const { return slopes_; }

 private:
  void FillCache(uint32_t seed) {
    cache_.assign(num_blocks_ * kv_.block_bytes(), 0xff);
    reference_.assign(num_blocks_ * int64_t{2} * c_.block_size * c_.num_kv_heads * c_.head_dim, NAN);
    std::vector<int32_t> free(num_blocks_ - 1);  // the last one stays NaN
    std::iota(free.begin(), free.end(), 0);
    std::mt19937 random(seed);
    std::shuffle(free.begin(), free.end(), random);
    std::normal_distribution<float> normal;
    tables_.assign(stride_ * c_.contexts.size(), 0x3fffffff);
    for (size_t s = 0; s < c_.contexts.size(); ++s) {
      int32_t* table = tables_.data() + s * stride_;
      const int32_t shared = s == 0 ? 0 : std::min(c_.shared_prefix, c_.contexts[s]) / c_.block_size;
      for (int32_t b = 0; b * c_.block_size < c_.contexts[s]; ++b) {
        if (b < shared) {
          table[b] = tables_[b];
          continue;
        }
        table[b] = free.back();
        free.pop_back();
      }
      for (int32_t t = shared * c_.block_size; t < c_.contexts[s]; ++t) StoreToken(table, t, random, normal);
      const int32_t rows = cu_q_lens_[s + 1] - cu_q_lens_[s];
      const int32_t first_seen = c_.window > 0 ? std::max(0, c_.contexts[s] - rows - c_.window + 1) : 0;
      if (c_.shared_prefix == 0) {
        std::fill_n(table, first_seen / c_.block_size, static_cast<int32_t>(num_blocks_ - 1));
      }
    }
  }

  void StoreToken(const int32_t* table, int32_t t, std::mt19937& random, std::normal_distribution<float>& normal) {
    const int32_t slot = table[t / c_.block_size] * c_.block_size + t % c_.block_size;
    for (int32_t h = 0; h < c_.num_kv_heads; ++h) {
      for (const bool is_v : {false, true}) {
        std::vector<float> values(c_.head_dim);
        for (float& value : values) value = normal(random);
        const KvRow row = RowOf(kv_, cache_.data(), slot, h, is_v);
        StoreRow(kv_, row, is_v, values.data());
        const std::vector<float> stored = LoadRow(kv_, row, is_v);
        const int64_t run = (int64_t{slot / c_.block_size} * c_.num_kv_heads + h) * 2 * c_.block_size;
        std::copy(stored.begin(), stored.end(),
                  reference_.begin() + (run + (is_v ? c_.block_size : 0) + slot % c_.block_size) * c_.head_dim);
      }
    }
  }

  const AttentionCase& c_;
  cuda::KvCacheView kv_;
  std::vector<unsigned char> cache_;
  std::vector<float> reference_;
  std::vector<int32_t> tables_, cu_q_lens_;
  int64_t stride_ = 0, num_blocks_ = 0;
  std::vector<float> q_, sinks_, slopes_;
  float scale_ = 0;
};

// The weights of the softmax are rounded to f16 or bf16, the output to its own type.
inline double AttentionTolerance(cuda::KvStorage storage, DType type) {
  const bool bf16 = storage == cuda::KvStorage::kBf16 || storage == cuda::KvStorage::kInt8;
  return (bf16 ? 8e-3 : 1.5e-3) + (type == DType::kF32 ? 0 : ToleranceOf(type));
}

}  // namespace quire::testing
