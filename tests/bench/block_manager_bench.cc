// Goals: performance-cpu.md B1-B8 (block pool, prefix look-up, cost of a scheduler step). One thread, fixed data.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "block_manager/block_manager.h"
#include "block_manager/block_pool.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

void IgnoreEviction(void*, BlockId) {}

// B1, B3: pairs of allocate and free, one block at a time.
void BM_PoolPair(benchmark::State& state) {
  BlockPool pool(static_cast<int32_t>(state.range(0)), &IgnoreEviction, nullptr);
  for (auto _ : state) {
    BlockId block = kNullBlock;
    benchmark::DoNotOptimize(pool.Allocate(absl::MakeSpan(&block, 1)).ok());
    pool.Release(block);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_PoolPair)->Arg(10'000)->Arg(1'000'000);

// B2: 1,000 blocks at once.
void BM_PoolBulk(benchmark::State& state) {
  BlockPool pool(static_cast<int32_t>(state.range(0)), &IgnoreEviction, nullptr);
  std::vector<BlockId> blocks(1000);
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool.Allocate(absl::MakeSpan(blocks)).ok());
    for (const BlockId block : blocks) pool.Release(block);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(blocks.size()));
}
BENCHMARK(BM_PoolBulk)->Arg(10'000)->Arg(1'000'000);

// B4: a prompt of 4,096 tokens, hashed and found whole in blocks of 16.
void BM_PrefixLookup(benchmark::State& state) {
  constexpr int32_t kBlockSize = 16, kTokens = 4097;
  BlockManager blocks({.num_blocks = 10'000, .block_size = kBlockSize});
  std::vector<int32_t> tokens(kTokens);
  for (int32_t i = 0; i < kTokens; ++i) tokens[i] = i * 31 % 1000;
  const EngineRequest request = MakeEngineRequest(tokens, {}, kBlockSize, {});
  PrefixKeys keys{request.root_hash, request.prompt_hashes};
  BlockTable owner = blocks.NewTable();
  if (!blocks.Reserve(owner, kTokens).ok()) return state.SkipWithError("no room");
  blocks.Publish(owner, tokens, kTokens, keys);
  BlockTable table = blocks.NewTable();
  table.ReserveCapacity(kTokens / kBlockSize + 1);
  for (auto _ : state) {
    BlockHash parent = keys.root;
    for (int32_t i = 0; i < kTokens / kBlockSize; ++i) {
      parent = keys.blocks[i] = ChainHash(parent, absl::MakeSpan(tokens).subspan(i * kBlockSize, kBlockSize));
    }
    const int32_t hit = blocks.MatchPrefix(keys, tokens, kTokens - 1, table);
    if (hit != kTokens - 1) return state.SkipWithError("no hit");
    table.Clear();
  }
}
BENCHMARK(BM_PrefixLookup);

// B5-B8: Schedule alone with `running` decoding sequences and a pool of `num_blocks`; Commit is timed apart.
void DecodeSteps(benchmark::State& state, bool time_commit) {
  const auto running = static_cast<int32_t>(state.range(0));
  BlockManager blocks({.num_blocks = static_cast<int32_t>(state.range(1)), .block_size = 16});
  Scheduler scheduler({.max_num_seqs = running, .max_num_batched_tokens = 65536},
                      {.max_model_len = 1 << 20, .eos_token_ids = {}}, &blocks);
  SamplingParams params;
  params.max_tokens = 1 << 17;
  SchedulePlan plan;
  StepResult result;
  StepOutputs outputs;
  const absl::Time now = absl::UnixEpoch();
  // Sequences that have grown past what the pool holds are replaced, outside the timing.
  const int32_t max_steps = (blocks.num_usable() / running - 2) * 16;
  int32_t steps = max_steps;
  uint64_t handle = 0;
  const auto step = [&](bool timed) {
    if (timed && time_commit) state.PauseTiming();
    scheduler.Schedule(now, &plan, &outputs);
    if (timed) time_commit ? state.ResumeTiming() : state.PauseTiming();
    result.samples.resize(plan.samples.size());
    for (SampledToken& token : result.samples) token.token_id = 1;
    scheduler.Commit(plan, result, now, &outputs);
    outputs.sequences.clear();
    if (timed && !time_commit) state.ResumeTiming();
  };
  for (auto _ : state) {
    if (steps == max_steps) {
      state.PauseTiming();
      for (int32_t i = 0; handle > 0 && i < running; ++i) scheduler.Abort(handle - i, now, &outputs);
      for (int32_t i = 0; i < running; ++i) {
        SamplingParams fitting = params;
        fitting.max_tokens = max_steps + 16;
        EngineRequest request = MakeEngineRequest({i, i + 1, i + 2}, fitting, 16, {});
        request.handle = ++handle;
        if (!scheduler.Add(std::move(request)).ok()) return state.SkipWithError("refused");
      }
      outputs.sequences.clear();
      for (int32_t i = 0; i < 4; ++i) step(false);
      steps = 4;
      state.ResumeTiming();
    }
    ++steps;
    step(true);
  }
  if (scheduler.stats().preemptions > 0) state.SkipWithError("preempted");
  state.SetItemsProcessed(state.iterations() * running);
}
void BM_Schedule(benchmark::State& state) { DecodeSteps(state, false); }
void BM_Commit(benchmark::State& state) { DecodeSteps(state, true); }
BENCHMARK(BM_Schedule)->Args({64, 1'000'000})->Args({256, 1'000'000})->Args({1024, 1'000'000})->Args({64, 10'000});
BENCHMARK(BM_Schedule)->Args({1024, 100'000})->Args({1024, 10'000});
BENCHMARK(BM_Commit)->Args({1024, 100'000});

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
