// B1-B4 of performance-cpu.md: block pool and prefix look-up. One thread, fixed data.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "block_manager/block_manager.h"
#include "block_manager/block_pool.h"
#include "scheduler/request.h"
#include "tests/bench/goal_report.h"

namespace quire {
namespace {

// A pool with the order of eviction that BlockManager uses; no block is behind another.
struct CachedPool : private BlockPool::Cache {
  explicit CachedPool(int32_t num_blocks) : eviction(num_blocks, {}), pool(num_blocks, this) {}
  void OnUnused(BlockId block) override { eviction.SetUnused(Entry(block)); }
  void OnUsed(BlockId block) override { eviction.SetUsed(Entry(block)); }
  void Evict() override {
    const EntryId victim = eviction.Next();
    eviction.Evicted(victim);
    eviction.Remove(victim);
    pool.UnmarkCached(BlockId{static_cast<int32_t>(victim)});
  }
  void Mark(BlockId block) {
    pool.MarkCached(block);
    eviction.Add(Entry(block), kNoEntry, 0, 0, {});
  }
  static EntryId Entry(BlockId block) { return EntryId{static_cast<int32_t>(block)}; }
  EvictionOrder eviction;
  BlockPool pool;
};

// Repeated, because only the best is free of what else runs.
void Setup(benchmark::internal::Benchmark* bench) { bench->MinTime(0.1)->Repetitions(5); }

// Pairs of allocate and free, one block at a time.
void BM_PoolPair(benchmark::State& state) {
  CachedPool cached(static_cast<int32_t>(state.range(0)));
  BlockPool& pool = cached.pool;
  for (auto _ : state) {
    BlockId block = kNullBlock;
    benchmark::DoNotOptimize(pool.Allocate(absl::MakeSpan(&block, 1)).ok());
    pool.Release(block);
  }
}
BENCHMARK(BM_PoolPair)->Arg(10'000)->Arg(1'000'000)->Apply(Setup);

// The same where every unused block is cached and they lie in no order, as after hours of use: each allocation takes
// the least valuable one over, each release makes it the youngest. O(log blocks) with a cache miss or two, where
// nothing is done between.
void BM_PoolTakeOver(benchmark::State& state) {
  const auto num_blocks = static_cast<int32_t>(state.range(0));
  CachedPool cached(num_blocks);
  BlockPool& pool = cached.pool;
  std::vector<BlockId> blocks(num_blocks - 1);
  if (!pool.Allocate(absl::MakeSpan(blocks)).ok()) return state.SkipWithError("no room");
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  for (const BlockId block : blocks) {
    cached.Mark(block);
    pool.Release(block);
  }
  for (auto _ : state) {
    BlockId block = kNullBlock;
    benchmark::DoNotOptimize(pool.Allocate(absl::MakeSpan(&block, 1)).ok());
    cached.Mark(block);
    pool.Release(block);
  }
}
BENCHMARK(BM_PoolTakeOver)->Arg(10'000)->Arg(1'000'000)->Apply(Setup);

// 1,000 blocks at once.
constexpr int32_t kBulk = 1'000;
void BM_PoolBulk(benchmark::State& state) {
  CachedPool cached(static_cast<int32_t>(state.range(0)));
  BlockPool& pool = cached.pool;
  std::vector<BlockId> blocks(kBulk);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool.Allocate(absl::MakeSpan(blocks)).ok());
    for (const BlockId block : blocks) pool.Release(block);
  }
}
BENCHMARK(BM_PoolBulk)->Arg(10'000)->Arg(1'000'000)->Apply(Setup);

// A prompt of 4,096 tokens, hashed and found whole in blocks of 16.
void BM_PrefixLookup(benchmark::State& state) {
  constexpr int32_t kBlockSize = 16, kTokens = 4'097;
  BlockManager blocks({.num_blocks = 10'000, .block_size = kBlockSize});
  std::vector<int32_t> tokens(kTokens);
  for (int32_t i = 0; i < kTokens; ++i) tokens[i] = i * 31 % 1000;
  const EngineRequest request = MakeEngineRequest(tokens, {}, kBlockSize, {});
  PrefixKeys keys{request.root_hash, request.prompt_hashes};
  BlockTable owner = blocks.NewTable();
  if (!blocks.Reserve(owner, kTokens, nullptr).ok()) return state.SkipWithError("no room");
  blocks.Publish(owner, tokens, kTokens, keys);
  BlockTable table = blocks.NewTable();
  table.ReserveCapacity(kTokens / kBlockSize + 1);
  for (auto _ : state) {
    BlockHash parent = keys.root;
    for (int32_t i = 0; i < kTokens / kBlockSize; ++i) {
      parent = keys.blocks[i] = ChainHash(parent, absl::MakeSpan(tokens).subspan(i * kBlockSize, kBlockSize));
    }
    const int32_t hit = blocks.MatchPrefix(keys, tokens, kTokens - 1, table).num_tokens;
    if (hit != kTokens - 1) return state.SkipWithError("no hit");
    table.Clear();
  }
}
BENCHMARK(BM_PrefixLookup)->Apply(Setup);

const std::vector<BenchGoal> kGoals = {
    {"B1", "M pairs/s, one block at a time, 1 M blocks", 20, 60,
     [](const BenchFigures& f) { return 1e-6 / f.seconds.at("BM_PoolPair/1000000"); }},
    {"B2", "M pairs/s, 1,000 blocks at a time, 1 M blocks", 50, 200,
     [](const BenchFigures& f) { return 1e-6 * kBulk / f.seconds.at("BM_PoolBulk/1000000"); }},
    {"B3", "B1 at 1 M blocks / at 10 k", 0.5, 0.8,
     [](const BenchFigures& f) { return f.seconds.at("BM_PoolPair/10000") / f.seconds.at("BM_PoolPair/1000000"); }},
    {"B4", "us, prefix of 4,096 tokens hashed and found", 40, 15,
     [](const BenchFigures& f) { return 1e6 * f.seconds.at("BM_PrefixLookup"); }},
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::RunBenchmarks(argc, argv, quire::kGoals); }
