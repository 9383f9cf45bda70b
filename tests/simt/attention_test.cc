// Paged decode and prefill attention against kernels/reference.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention_instance.cuh"
#include "tests/simt/attention_case.h"

namespace quire::cuda {
namespace {

using simt::DeviceArray;
using testing::AttentionCase;
using testing::AttentionData;
using testing::AttentionValues;
using testing::DeviceMatrix;

// Null for an empty array: what the kernels take as absent.
template <typename T>
const T* OrNull(const DeviceArray<T>& array) {
  return array.size() > 0 ? array.data() : nullptr;
}

class AttentionTest : public testing::KernelTest {
 protected:
  // What both kernels are given.
  struct Inputs {
    Inputs(const AttentionCase& c, const AttentionData& data)
        : cache(data.cache()),
          tables(data.tables()),
          contexts(c.contexts),
          cu_q_lens(data.cu_q_lens()),
          sinks(data.sinks()),
          slopes(data.slopes()),
          logsumexp(static_cast<size_t>(data.cu_q_lens().back()) * c.num_heads),
          q(c.type, data.cu_q_lens().back(), int64_t{c.num_heads} * c.head_dim, data.q(), 8),
          out(c.type, data.cu_q_lens().back(), int64_t{c.num_heads} * c.head_dim, 4),
          kv(data.kv()) {
      kv.data = cache.data();
    }
    // The fields that decode and prefill share.
    template <typename Params>
    Params Make(const AttentionCase& c, const AttentionData& data) {
      Params params;
      params.q = q.view(), params.out = out.view(), params.kv = kv;
      params.block_tables = tables.data(), params.table_stride = data.table_stride();
      params.context_lens = contexts.data();
      params.num_heads = c.num_heads, params.scale = data.scale();
      params.softcap = c.softcap, params.window = c.window;
      params.sinks = OrNull(sinks), params.alibi_slopes = OrNull(slopes);
      params.logsumexp = logsumexp.data();
      return params;
    }

    DeviceArray<unsigned char> cache;
    DeviceArray<int32_t> tables, contexts, cu_q_lens;
    DeviceArray<float> sinks, slopes, logsumexp;
    DeviceMatrix q, out;
    KvCacheView kv;
  };

  void ExpectValues(const AttentionCase& c, KvStorage storage, const Inputs& inputs, const AttentionValues& expected) {
    ExpectNear(inputs.out.Download(), expected.out, testing::AttentionTolerance(storage, c.type));
    ExpectNear(inputs.logsumexp.Download(), expected.logsumexp, 1e-3);
  }

  void RunDecode(const AttentionCase& c, const AttentionData& data, int32_t target_splits, int32_t fixed,
                 KvStorage storage, const AttentionValues& expected) {
    DecodePlan plan;
    PlanDecode(c.contexts,
               {.window = c.window,
                .target_splits = target_splits,
                .min_tokens_per_split = 32,
                .fixed_tokens_per_split = fixed},
               &plan);
    const int32_t num_splits = static_cast<int32_t>(plan.splits.size());
    Inputs inputs(c, data);
    plan.splits.resize(num_splits + 2);  // a captured graph launches more than there are
    const DeviceArray<DecodeSplit> splits(plan.splits);
    const DeviceArray<int32_t> count(std::vector<int32_t>{num_splits}), merge_begin(plan.merge_begin);
    const DeviceArray<float> partial_out(static_cast<size_t>(plan.merge_begin.back()) * c.num_heads * c.head_dim);
    const DeviceArray<float2> partial_state(static_cast<size_t>(plan.merge_begin.back()) * c.num_heads);
    auto params = inputs.Make<PagedDecodeParams>(c, data);
    params.splits = splits.data(), params.num_splits = count.data(), params.merge_begin = merge_begin.data();
    params.max_splits = num_splits + 2, params.sequences = static_cast<int32_t>(c.contexts.size());
    params.partial_out = partial_out.data(), params.partial_state = partial_state.data();
    ASSERT_EQ(LaunchPagedDecode(params, nullptr), cudaSuccess);
    ExpectValues(c, storage, inputs, expected);
  }

  void RunPrefill(const AttentionCase& c, const AttentionData& data, KvStorage storage,
                  const AttentionValues& expected) {
    Inputs inputs(c, data);
    std::vector<PrefillTile> plan;
    PlanPrefill(data.cu_q_lens(), c.num_heads / c.num_kv_heads, &plan);
    const DeviceArray<PrefillTile> tiles(plan);
    auto params = inputs.Make<PagedPrefillParams>(c, data);
    params.cu_q_lens = inputs.cu_q_lens.data(), params.tiles = tiles.data();
    params.num_tiles = static_cast<int32_t>(plan.size());
    ASSERT_EQ(LaunchPagedPrefill(params, nullptr), cudaSuccess);
    ExpectValues(c, storage, inputs, expected);
  }

  // Runs the case for each storage that this program has an instance for.
  template <typename Run>
  void ForEachStorage(const AttentionCase& c, Run run) {
    SCOPED_TRACE(c.name);
    for (const KvStorage storage : testing::kAllStorages) {
      const KvCacheView kv{nullptr, storage, c.block_size, c.num_kv_heads, c.head_dim};
      if (FindAttentionInstance(kv, c.num_heads) == nullptr) continue;
      SCOPED_TRACE(testing::NameOf(storage));
      AttentionData data(c, storage, 11);
      const AttentionValues expected = data.Reference(reference());
      ForEachSchedule([&] { run(data, storage, expected); });
      ++storages_run_;
    }
  }

  int storages_run_ = 0;
};

// Contexts of 1, a block and its neighbours, several splits; groups 1, 3, 4, 7, 16; sizes that are padded and rows that
// are no multiple of 16 bytes.
std::vector<AttentionCase> DecodeCases() {
  return {
      {"group 1", 2, 2, 64, 16, {1, 15, 16, 17}},
      {"group 4, shared blocks, bf16", 8, 2, 128, 16, {70, 100, 33}, {}, 0, 0, false, false, 32, DType::kBf16},
      {"group 3, window", 3, 1, 64, 32, {70, 5, 33}, {}, 20},
      {"group 7, soft cap, sinks", 7, 1, 80, 16, {40, 31}, {}, 0, 5.0f, true},
      {"group 16, alibi", 16, 1, 128, 64, {63, 65, 130}, {}, 0, 0, false, true},
      {"head size 8, window beyond the context, sinks", 4, 2, 8, 16, {20, 3}, {}, 64, 0, true},
      {"head size 100, all of it, f16", 6, 2, 100, 32, {50}, {}, 24, 3.0f, true, true, 0, DType::kF16},
      {"head size 96", 2, 1, 96, 16, {47, 2}},
      {"head size 256, group 5", 5, 1, 256, 16, {37, 64}},
      {"head size 132", 2, 1, 132, 16, {18}},
  };
}

TEST_F(AttentionTest, Decode) {
  for (const AttentionCase& c : DecodeCases()) {
    ForEachStorage(c, [&](const AttentionData& data, KvStorage storage, const AttentionValues& expected) {
      RunDecode(c, data, /*target_splits=*/1, /*fixed=*/0, storage, expected);
      RunDecode(c, data, /*target_splits=*/12, /*fixed=*/0, storage, expected);
      RunDecode(c, data, /*target_splits=*/1, /*fixed=*/32, storage, expected);
    });
  }
  EXPECT_GT(storages_run_, 0);
}

// Whole prompts, chunks behind a context, single rows beside them; 64 packed rows and more.
std::vector<AttentionCase> PrefillCases() {
  return {
      {"group 1", 2, 2, 64, 16, {1, 17, 16}, {1, 17, 16}},
      {"group 4, chunks, shared blocks",
       4,
       1,
       128,
       16,
       {80, 70, 33},
       {20, 1, 33},
       0,
       0,
       false,
       false,
       32,
       DType::kBf16},
      {"group 3, window", 3, 1, 64, 32, {50, 40}, {30, 3}, 20},
      {"group 7, soft cap, sinks", 7, 1, 80, 16, {40, 5}, {11, 5}, 0, 5.0f, true},
      {"group 16, alibi", 16, 1, 128, 64, {70}, {6}, 0, 0, false, true},
      {"head size 20, all of it", 2, 1, 20, 16, {45, 3}, {45, 1}, 9, 3.0f, true, true},
      {"head size 96", 2, 1, 96, 16, {35}, {35}},
      {"head size 256", 2, 1, 256, 16, {40}, {33}},
  };
}

TEST_F(AttentionTest, Prefill) {
  for (const AttentionCase& c : PrefillCases()) {
    ForEachStorage(c, [&](const AttentionData& data, KvStorage storage, const AttentionValues& expected) {
      RunPrefill(c, data, storage, expected);
    });
  }
  EXPECT_GT(storages_run_, 0);
}

TEST_F(AttentionTest, PrefillOfOneRowIsDecode) {
  const AttentionCase c{"decode", 4, 2, 64, 16, {1, 30, 70}};
  ForEachStorage(c, [&](const AttentionData& data, KvStorage storage, const AttentionValues& expected) {
    RunPrefill(c, data, storage, expected);
  });
}

TEST_F(AttentionTest, SwizzledTilesHaveNoBankConflicts) {
  for (const int32_t dim : {64, 128}) {
    const AttentionCase c{"conflicts", 4, 1, dim, 16, {40}, {20}};
    ForEachStorage(c, [&](const AttentionData& data, KvStorage storage, const AttentionValues& expected) {
      simt::stats() = {};
      RunPrefill(c, data, storage, expected);
      EXPECT_EQ(simt::stats().ldmatrix_ways, simt::stats().ldmatrix);
    });
  }
}

TEST_F(AttentionTest, RefusesWhatNoInstanceServes) {
  PagedDecodeParams params;
  params.max_splits = params.sequences = params.num_heads = 1;
  const auto launch = [&](int32_t block_size, int32_t kv_heads, int32_t head_dim, int32_t heads) {
    params.kv = {nullptr, KvStorage::kBf16, block_size, kv_heads, head_dim};
    params.num_heads = heads;
    return LaunchPagedDecode(params, nullptr);
  };
  EXPECT_EQ(launch(8, 1, 64, 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(16, 1, 260, 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(16, 1, 66, 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(16, 1, 64, 17), cudaErrorInvalidValue);
  EXPECT_EQ(launch(16, 2, 64, 3), cudaErrorInvalidValue);
}

TEST(DecodePlanTest, CoversEveryKeyOnceWithinTheLimit) {
  const std::vector<int32_t> contexts = {1, 4000, 0, 16, 129, 700};
  for (const int32_t window : {0, 100}) {
    for (const int32_t target : {1, 6, 40, 1000}) {
      DecodePlan plan;
      PlanDecode(contexts, {.window = window, .target_splits = target}, &plan);
      EXPECT_LE(plan.splits.size(), std::max<size_t>(contexts.size(), target));
      std::vector<int64_t> covered(contexts.size());
      std::vector<int32_t> partials(contexts.size());
      for (const DecodeSplit& split : plan.splits) {
        EXPECT_EQ(split.begin % 16, 0);
        EXPECT_LT(split.begin, split.end);
        EXPECT_LE(split.end - split.begin, plan.tokens_per_split);
        covered[split.sequence] += split.end - split.begin;
        partials[split.sequence] += split.partial >= 0;
      }
      for (size_t s = 0; s < contexts.size(); ++s) {
        const int32_t first = FirstKey(contexts[s], window) / 16 * 16;
        EXPECT_EQ(covered[s], contexts[s] - first) << s;
        EXPECT_EQ(plan.merge_begin[s + 1] - plan.merge_begin[s], partials[s]);
        EXPECT_NE(partials[s], 1);
      }
    }
  }
}

// Split points that depend on the position alone.
TEST(DecodePlanTest, FixedSplitsDoNotDependOnTheBatch) {
  DecodePlan alone, together;
  PlanDecode(std::vector<int32_t>{1000}, {.fixed_tokens_per_split = 256}, &alone);
  PlanDecode(std::vector<int32_t>{5, 1000, 90000}, {.target_splits = 7, .fixed_tokens_per_split = 256}, &together);
  std::vector<std::pair<int32_t, int32_t>> a, b;
  for (const DecodeSplit& s : alone.splits) a.push_back({s.begin, s.end});
  for (const DecodeSplit& s : together.splits) {
    if (s.sequence == 1) b.push_back({s.begin, s.end});
  }
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 4u);
}

}  // namespace
}  // namespace quire::cuda
