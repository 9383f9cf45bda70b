#include <bit>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/factory.h"
#include "tests/kernels/attention_driver.h"
#include "tests/testing/sanitized.h"

// Attention of sequences that begin with the same blocks: keys and values are read once, bits stay.
namespace quire {
namespace {

// A step's batch: sequences share the blocks of `parent`'s first `shared` tokens.
struct Member {
  int32_t context = 0;
  int32_t rows = 1;
  int32_t parent = -1;  // an earlier member
  int32_t shared = 0;   // tokens, a multiple of the block size
};

struct SharedBatch {
  SharedBatch(const std::vector<Member>& members, int32_t block_size) : stride(0) {
    for (const Member& m : members) stride = std::max<int64_t>(stride, (m.context + block_size - 1) / block_size);
    for (const Member& m : members) {
      std::vector<int32_t> table;
      for (int64_t i = 0; i < stride; ++i) {
        const bool inherits = m.parent >= 0 && i < m.shared / block_size;
        table.push_back(inherits ? tables[m.parent * stride + i] : num_blocks++);
      }
      tables.insert(tables.end(), table.begin(), table.end());
      cu_q_lens.push_back(cu_q_lens.back() + m.rows);
      context_lens.push_back(m.context);
    }
    std::vector<int32_t> places(num_blocks);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), std::mt19937(5));
    for (int32_t& block : tables) block = places[block];
  }
  AttentionBatch batch() const { return {cu_q_lens, context_lens, tables, stride}; }
  // Member m alone.
  AttentionBatch alone(size_t m) const {
    return {absl::MakeConstSpan(lone_q_lens[cu_q_lens[m + 1] - cu_q_lens[m] - 1]),
            absl::MakeConstSpan(context_lens).subspan(m, 1), absl::MakeConstSpan(tables).subspan(m * stride, stride),
            stride};
  }

  int32_t num_blocks = 0;
  int64_t stride;
  std::vector<int32_t> tables, cu_q_lens = {0}, context_lens;
  std::vector<std::vector<int32_t>> lone_q_lens = {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}};
};

struct Heads {
  int32_t num_heads, num_kv_heads, head_dim;
  int32_t window = 0;
  bool alibi = false, sinks = false;
};

// Random K and V in every block, finite ones.
void FillCache(Backend& backend, PagedKvView& kv, Buffer& memory) {
  memory = *backend.Allocate(kv.num_blocks * kv.bytes_per_block());
  kv.data = memory.data();
  const int64_t tokens = kv.num_blocks * kv.block_size, width = int64_t{3} * kv.num_kv_heads * kv.head_dim;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(tokens * width);
  for (float& value : qkv) value = normal(random);
  std::vector<int32_t> slots(tokens);
  std::iota(slots.begin(), slots.end(), 0);
  ASSERT_TRUE(backend.ops()
                  .RopeAndStoreKv({.qkv = F32Matrix(qkv.data(), tokens, width),
                                   .num_heads = kv.num_kv_heads,
                                   .cos_sin = F32Matrix(nullptr, tokens, 0),
                                   .slot_mapping = slots,
                                   .kv = kv})
                  .ok());
}

std::vector<float> Attend(Backend& backend, const Heads& heads, const PagedKvView& kv, const AttentionBatch& batch,
                          const float* q) {
  const int64_t rows = batch.cu_q_lens.back(), width = int64_t{heads.num_heads} * heads.head_dim;
  const std::unique_ptr<AttentionPlan> plan = backend.ops().CreateAttentionPlan();
  EXPECT_TRUE(backend.ops().PlanAttention(batch, *plan).ok());
  std::vector<float> slopes(heads.num_heads, -0.01f), sinks(heads.num_heads, 0.3f), out(rows * width);
  std::vector<float> queries(q, q + rows * width);
  PagedAttentionParams params;
  params.plan = plan.get();
  params.q = F32Matrix(queries.data(), rows, width);
  params.kv = kv;
  params.num_heads = heads.num_heads;
  params.scale = 0.2f;
  params.window = heads.window;
  params.sinks = heads.sinks ? sinks.data() : nullptr;
  params.alibi_slopes = heads.alibi ? slopes.data() : nullptr;
  params.out = F32Matrix(out.data(), rows, width);
  EXPECT_TRUE(backend.ops().PagedAttention(params).ok());
  return out;
}

TEST(SharedPrefixTest, EachRowHasTheBitsThatItHasAlone) {
  const std::vector<Heads> shapes = {
      {9, 3, 64}, {4, 4, 20}, {16, 1, 32, 0, false, true}, {4, 2, 16, 700}, {4, 2, 16, 0, true}};
  const std::vector<Member> members = {{1100},
                                       {1030, 1, 0, 1024},
                                       {1024, 1, 0, 1024},  // nothing but the prefix
                                       {300, 1, 0, 256},    // far less of it
                                       {90, 1, 0, 64},      // less than a chunk
                                       {1200, 5, 0, 1024},  // several rows
                                       {800},
                                       {900, 1, 6, 768},
                                       {257, 1, 6, 256}};
  uint32_t seed = 0;
  for (const Heads& heads : shapes) {
    for (const DType type : {DType::kF16, DType::kF32, DType::kI8}) {
      const int32_t block_size = std::vector<int32_t>{16, 64, 32}[seed++ % 3];
      const SharedBatch batch(members, block_size);
      const int64_t width = int64_t{heads.num_heads} * heads.head_dim;
      std::vector<float> q(batch.cu_q_lens.back() * width);
      std::normal_distribution<float> normal;
      std::mt19937 random(seed);
      for (float& value : q) value = normal(random);
      for (const CpuIsa isa : AvailableCpuIsas()) {
        if (testing::kSanitized && isa != AvailableCpuIsas().back()) continue;
        const std::unique_ptr<Backend> backend = testing::MakeBackend(DeviceKind::kCpu, isa, 2);
        PagedKvView kv{.dtype = type,
                       .num_blocks = batch.num_blocks,
                       .block_size = block_size,
                       .num_kv_heads = heads.num_kv_heads,
                       .head_dim = heads.head_dim};
        Buffer memory;
        FillCache(*backend, kv, memory);
        const std::vector<float> together = Attend(*backend, heads, kv, batch.batch(), q.data());
        for (size_t m = 0; m < members.size(); ++m) {
          const int64_t begin = batch.cu_q_lens[m] * width;
          const std::vector<float> alone = Attend(*backend, heads, kv, batch.alone(m), q.data() + begin);
          for (size_t i = 0; i < alone.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(together[begin + i]), std::bit_cast<uint32_t>(alone[i]))
                << backend->Describe() << " heads " << heads.num_heads << " kv " << Name(type) << " member " << m;
          }
        }
      }
    }
  }
}

AttentionSplit SplitOf(const SharedBatch& batch, const AttentionShape& shape) {
  CpuAttentionPlan plan;
  plan.Build(batch.batch(), 2);
  return plan.SplitFor(shape);
}

TEST(SharedPrefixTest, WholeChunksAreDoneOnceForAllWhoShareThem) {
  const SharedBatch batch({{1100}, {1030, 1, 0, 1024}, {1050, 1, 0, 768}}, 16);
  const AttentionShape shape = {9, 3, 64, 0, 16};
  const AttentionSplit split = SplitOf(batch, shape);
  ASSERT_EQ(split.shared.size(), 1u);
  EXPECT_EQ(split.shared[0].num_rows, 3);
  EXPECT_EQ(split.shared[0].num_chunks, 3);
  int64_t read = 0;  // chunks of a KV head
  for (const AttentionItem& item : split.items) read += item.chunk_end - item.chunk_begin;
  EXPECT_EQ(read, 3 * (3 + 2 + 2 + 2));
  EXPECT_EQ(split.merges.size(), 9u);
}

TEST(SharedPrefixTest, NothingIsSharedWhereScoresDependOnPlaces) {
  const SharedBatch batch({{1100}, {1030, 1, 0, 1024}}, 16);
  EXPECT_EQ(SplitOf(batch, {9, 3, 64, 0, 16}).shared.size(), 1u);
  EXPECT_TRUE(SplitOf(batch, {9, 3, 64, 500, 16}).shared.empty());      // a window
  EXPECT_TRUE(SplitOf(batch, {9, 3, 64, 0, 16, true}).shared.empty());  // ALiBi
  EXPECT_TRUE(SplitOf(batch, {48, 1, 64, 0, 16}).shared.empty());       // no room for a second row
  EXPECT_TRUE(SplitOf(SharedBatch({{1100}, {300, 1, 0, 240}}, 16), {9, 3, 64, 0, 16}).shared.empty());
  EXPECT_TRUE(SplitOf(SharedBatch({{1100, 2}, {1030, 2, 0, 1024}}, 16), {9, 3, 64, 0, 16}).shared.empty());
}

TEST(SharedPrefixTest, AShortPrefixDoesNotCutALongOne) {
  const SharedBatch batch({{2100}, {2100, 1, 0, 2048}, {600, 1, 0, 256}}, 16);
  const AttentionSplit split = SplitOf(batch, {9, 3, 64, 0, 16});
  ASSERT_EQ(split.shared.size(), 1u);
  EXPECT_EQ(split.shared[0].num_rows, 2);
  EXPECT_EQ(split.shared[0].num_chunks, 8);
}

}  // namespace
}  // namespace quire
