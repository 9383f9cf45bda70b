// B5-B9, B16 and B18 of performance-cpu.md: what a step costs beside the model. One thread, fixed data.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "scheduler/batch_builder.h"
#include "scheduler/scheduler.h"
#include "tests/bench/bench_util.h"
#include "tests/bench/decode_load.h"
#include "tests/bench/goal_report.h"
#include "tests/testing/allocation_counter.h"

namespace quire {
namespace {

constexpr double kGpuStep = 12.9e-3;  // seconds: 256 rows of an 8B model on an H200, performance-gpu.md

void Setup(benchmark::internal::Benchmark* bench) { bench->UseManualTime()->MinTime(0.05)->Repetitions(5); }

// Times `work` alone, and counts its allocations.
class Stopwatch {
 public:
  template <class Work>
  void Run(benchmark::State& state, Work work) {
    const int64_t before = testing::ThreadAllocations();
    const BenchClock::time_point begin = BenchClock::now();
    work();
    state.SetIterationTime(SecondsSince(begin));
    allocations_ += testing::ThreadAllocations() - before;
  }
  void Report(benchmark::State& state) const { state.counters["allocations"] = static_cast<double>(allocations_); }

 private:
  int64_t allocations_ = 0;
};

// Args: sequences that decode, blocks of the pool.
DecodeLoad MakeLoad(const benchmark::State& state) {
  return DecodeLoad(
      {.running = static_cast<int32_t>(state.range(0)), .num_blocks = static_cast<int32_t>(state.range(1))});
}

void BM_Schedule(benchmark::State& state) {
  DecodeLoad load = MakeLoad(state);
  Stopwatch watch;
  for (auto _ : state) {
    if (load.steps_left() == 0) load.Restart();
    watch.Run(state, [&load] { load.Schedule(); });
    load.Commit();
  }
  if (load.preemptions() > 0) state.SkipWithError("preempted");
  watch.Report(state);
}
BENCHMARK(BM_Schedule)->Args({64, 1'000'000})->Args({64, 10'000})->Apply(Setup);
BENCHMARK(BM_Schedule)->Args({256, 1'000'000})->Args({256, 10'000})->Apply(Setup);
BENCHMARK(BM_Schedule)->Args({1'024, 1'000'000})->Args({1'024, 10'000})->Apply(Setup);

void BM_Commit(benchmark::State& state) {
  DecodeLoad load = MakeLoad(state);
  Stopwatch watch;
  for (auto _ : state) {
    if (load.steps_left() == 0) load.Restart();
    load.Schedule();
    watch.Run(state, [&load] { load.Commit(); });
  }
  if (load.preemptions() > 0) state.SkipWithError("preempted");
  watch.Report(state);
}
BENCHMARK(BM_Commit)->Args({1'024, 100'000})->Apply(Setup);

// Args: sequences, tokens of each. The maximum length is far above, as it is in use.
void BM_BuildBatch(benchmark::State& state) {
  const auto running = static_cast<int32_t>(state.range(0)), length = static_cast<int32_t>(state.range(1));
  DecodeLoad load({.running = running, .num_blocks = running * (length / 16 + 20), .prompt_len = length});
  BatchBuilder builder(16, 32'768);
  Stopwatch watch;
  bool warm = false;
  for (auto _ : state) {
    if (load.steps_left() == 0) {
      load.Restart();
      warm = false;
    }
    load.Schedule();
    if (!warm) builder.Build(load.plan());  // buffers grow with the first
    warm = true;
    watch.Run(state, [&] { benchmark::DoNotOptimize(builder.Build(load.plan()).block_tables.data()); });
    load.Commit();
  }
  watch.Report(state);
}
BENCHMARK(BM_BuildBatch)->Args({1'024, 512})->Args({1'024, 2'048})->Apply(Setup);

// A closed load whose prompts all differ, in a pool full of cached blocks: every new block evicts one. Time of all that
// the engine and the tokenizer threads do for it but the model.
class MissLoad {
 public:
  explicit MissLoad(bool caching)
      : blocks_({.num_blocks = 12'000, .block_size = kBlockSize, .enable_prefix_cache = caching}),
        scheduler_({.max_num_seqs = kRunning, .max_num_batched_tokens = 4'096},
                   {.max_model_len = 2'048, .eos_token_ids = {}}, &blocks_) {}

  void Step() {
    while (scheduler_.stats().requests_running + scheduler_.stats().requests_waiting < kRunning) {
      std::vector<int32_t> prompt(161);
      for (int32_t& id : prompt) id = static_cast<int32_t>((seed_ = seed_ * 6364136223846793005u + 1) >> 40);
      SamplingParams params;
      params.max_tokens = 38 + static_cast<int32_t>(seed_ >> 33) % 601;  // 338 on average
      EngineRequest request = MakeEngineRequest(std::move(prompt), params, kBlockSize, {});
      request.handle = ++num_requests_;
      QUIRE_CHECK(scheduler_.Add(std::move(request)).ok());
    }
    scheduler_.Schedule(absl::UnixEpoch(), &plan_, &outputs_);
    result_.samples.assign(plan_.samples.size(), SampledToken{.token_id = 1});
    scheduler_.Commit(plan_, result_, absl::UnixEpoch(), &outputs_);
    outputs_.sequences.clear();
  }
  int64_t hits() const { return scheduler_.stats().prefix_hit_tokens; }
  int64_t evictions() const { return blocks_.stats().evictions; }

 private:
  static constexpr int32_t kRunning = 256, kBlockSize = 16;

  BlockManager blocks_;
  Scheduler scheduler_;
  SchedulePlan plan_;
  StepResult result_;
  StepOutputs outputs_;
  uint64_t seed_ = 1, num_requests_ = 0;
};

void BM_MissSteps(benchmark::State& state) {
  MissLoad load(state.range(0) != 0);
  for (int i = 0; i < 1'000; ++i) load.Step();
  for (auto _ : state) {
    const BenchClock::time_point begin = BenchClock::now();
    load.Step();
    state.SetIterationTime(SecondsSince(begin));
  }
  if (load.hits() > 0 || (state.range(0) != 0) != (load.evictions() > 0)) state.SkipWithError("not the load meant");
}
BENCHMARK(BM_MissSteps)->Arg(0)->Arg(1)->Apply(Setup);

double Seconds(const BenchFigures& f, const char* name) { return f.seconds.at(name); }

const std::vector<BenchGoal> kGoals = {
    {"B5", "us, Schedule with 1,024 running", 150, 40,
     [](const BenchFigures& f) {
       return 1e6 * std::max(Seconds(f, "BM_Schedule/1024/1000000"), Seconds(f, "BM_Schedule/1024/10000"));
     }},
    {"B6", "%, Schedule with 256 running / a GPU step of 12.9 ms", 1, 0.2,
     [](const BenchFigures& f) { return 100 * Seconds(f, "BM_Schedule/256/1000000") / kGpuStep; }},
    {"B7", "us a sequence more, Schedule from 64 to 1,024 running", 0.15, 0.04,
     [](const BenchFigures& f) {
       return 1e6 * (Seconds(f, "BM_Schedule/1024/1000000") - Seconds(f, "BM_Schedule/64/1000000")) / (1'024 - 64);
     }},
    {"B7", "cost a sequence at 1,024 running / at 64", 1, 0.9,
     [](const BenchFigures& f) {
       return Seconds(f, "BM_Schedule/1024/1000000") / 1'024 / (Seconds(f, "BM_Schedule/64/1000000") / 64);
     }},
    {"B8", "Schedule with 1 M blocks / with 10 k, 64 running", 1.2, 1.05,
     [](const BenchFigures& f) { return Seconds(f, "BM_Schedule/64/1000000") / Seconds(f, "BM_Schedule/64/10000"); }},
    {"B8", "the same, 256 running", 1.2, 1.05,
     [](const BenchFigures& f) { return Seconds(f, "BM_Schedule/256/1000000") / Seconds(f, "BM_Schedule/256/10000"); }},
    {"B9", "us, batch of 1,024 sequences of 512 tokens", 60, 20,
     [](const BenchFigures& f) { return 1e6 * Seconds(f, "BM_BuildBatch/1024/512"); }},
    {"B9", "us, batch of 1,024 sequences of 2,048 tokens", 60, 20,
     [](const BenchFigures& f) { return 1e6 * Seconds(f, "BM_BuildBatch/1024/2048"); }},
    {"B16", "throughput at 0 % hits, cache on / off, 256 running, GPU step of 12.9 ms", 0.98, 0.995,
     [](const BenchFigures& f) {
       return (kGpuStep + Seconds(f, "BM_MissSteps/0")) / (kGpuStep + Seconds(f, "BM_MissSteps/1"));
     }},
    {"B18", "heap allocations of Schedule, Commit and Build in steady state", 0, 0,
     [](const BenchFigures& f) {
       double sum = 0;
       for (const char* name : {"BM_Schedule/1024/1000000", "BM_Commit/1024/100000", "BM_BuildBatch/1024/512"}) {
         sum += f.counters.at(name).at("allocations");
       }
       return sum;
     }},
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::RunBenchmarks(argc, argv, quire::kGoals); }
