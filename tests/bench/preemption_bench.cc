// B17 of performance-cpu.md: a load that preempts all the time, with forced swapping, forced recomputation and `auto`,
// which should come near the better of the two. On the CPU a copy to the host is a copy within memory, so swapping is
// what pays; with copy_ms each copied block takes so much longer, as if the host were far away.
//
//   preemption_bench MODEL [copy_ms=0] [threads=2] [rounds=2]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/factory.h"
#include "model/transformer_runner.h"
#include "scheduler/engine.h"
#include "scheduler/engine_with_runner.h"

namespace quire {
namespace {

constexpr int32_t kRequests = 10, kPromptTokens = 64, kOutputTokens = 224;
constexpr int32_t kBlockSize = 32, kPoolTokens = 768, kHostTokens = 4096;

// A runner whose host is far away.
class FarHostRunner : public ModelRunner {
 public:
  FarHostRunner(std::unique_ptr<ModelRunner> runner, double seconds_per_block)
      : runner_(std::move(runner)), seconds_per_block_(seconds_per_block) {}

  absl::Status Submit(const ForwardBatch& batch) override {
    const auto is_host = [this](const BlockCopyIds& copy) { return std::max(copy.src, copy.dst) >= num_kv_blocks(); };
    const auto copies = std::count_if(batch.block_copies.begin(), batch.block_copies.end(), is_host);
    delay_ = static_cast<double>(copies) * seconds_per_block_;
    // Waits at work, as a copy would.
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < delay_) {
    }
    return runner_->Submit(batch);
  }
  absl::Status Wait(StepResult* result) override {
    const absl::Status status = runner_->Wait(result);
    result->host_copy_seconds += delay_;
    return status;
  }
  int32_t vocab_size() const override { return runner_->vocab_size(); }
  int32_t num_kv_blocks() const override { return runner_->num_kv_blocks(); }
  int32_t block_size() const override { return runner_->block_size(); }
  int32_t num_host_blocks() const override { return runner_->num_host_blocks(); }
  int64_t weight_bytes_per_step() const override { return runner_->weight_bytes_per_step(); }
  int64_t kv_bytes_per_token() const override { return runner_->kv_bytes_per_token(); }
  std::string Describe() const override { return runner_->Describe(); }

 private:
  const std::unique_ptr<ModelRunner> runner_;
  const double seconds_per_block_;
  double delay_ = 0;
};

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", std::string(value.status().message()).c_str());
  std::exit(1);
}

struct Figures {
  double seconds = 0;
  EngineStats stats;
};

std::vector<int32_t> Prompt(int32_t seed, int32_t vocab_size) {
  std::vector<int32_t> ids(kPromptTokens);
  auto state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return ids;
}

Figures Run(const std::string& model, int threads, double copy_seconds, PreemptionMode mode) {
  EngineOptions options;
  options.model_path = model;
  options.scheduler.preemption = mode;
  TransformerRunnerOptions runner;
  runner.model_path = model;
  runner.backend = OrExit(CreateBackend({DeviceKind::kCpu, CpuIsa::kAuto, threads}));
  runner.block_size = kBlockSize;
  runner.num_kv_blocks = kPoolTokens / kBlockSize + 1;
  // Without a tier what is preempted is computed again, unless the cache still has it.
  runner.num_host_blocks = mode == PreemptionMode::kRecompute ? 0 : kHostTokens / kBlockSize;
  auto engine = OrExit(CreateEngineWithRunner(
      options, OrExit(LoadModelConfig(model)),
      std::make_unique<FarHostRunner>(OrExit(CreateTransformerRunner(std::move(runner))), copy_seconds)));
  engine->Start();
  const auto begin = std::chrono::steady_clock::now();
  for (int32_t i = 0; i < kRequests; ++i) {
    SamplingParams params;
    params.temperature = 0;
    params.max_tokens = kOutputTokens;
    params.ignore_eos = true;
    EngineRequest request =
        MakeEngineRequest(Prompt(i, engine->info().config.vocab_size), params, kBlockSize, engine->info().key_context);
    request.handle = i + 1;
    QUIRE_CHECK(engine->Submit(std::move(request)).ok());
  }
  for (int32_t left = kRequests; left > 0; engine->outputs(0).Release()) {
    const StepOutputs* outputs = engine->outputs(0).Pop();
    QUIRE_CHECK(outputs != nullptr);
    for (const SequenceOutput& output : outputs->sequences) {
      QUIRE_CHECK(output.error.ok());
      left -= output.request_finished;
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  Figures figures{elapsed.count(), engine->GetStats()};
  engine->Stop();
  return figures;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: preemption_bench MODEL [copy_ms=0] [threads=2] [rounds=2]\n");
    return 64;
  }
  const double copy_ms = argc > 2 ? std::atof(argv[2]) : 0;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 2, rounds = argc > 4 ? std::atoi(argv[4]) : 2;
  constexpr std::pair<const char*, PreemptionMode> kModes[] = {
      {"swap", PreemptionMode::kSwap}, {"recompute", PreemptionMode::kRecompute}, {"auto", PreemptionMode::kAuto}};
  std::printf("%d requests of %d + %d tokens, %d tokens of KV, %.1f ms a copied block more\n", kRequests, kPromptTokens,
              kOutputTokens, kPoolTokens, copy_ms);
  double best[3] = {};
  for (int round = 0; round < rounds; ++round) {
    for (int m = 0; m < 3; ++m) {
      const Figures figures = Run(argv[1], threads, copy_ms * 1e-3, kModes[m].second);
      if (round == 0 || figures.seconds < best[m]) best[m] = figures.seconds;
      std::printf("%-10s %7.2f s, %3lld preemptions, %3lld swapped, %6.1f MB out, %6.1f MB in\n", kModes[m].first,
                  figures.seconds, static_cast<long long>(figures.stats.preemptions),
                  static_cast<long long>(figures.stats.swaps), 1e-6 * static_cast<double>(figures.stats.host_bytes_out),
                  1e-6 * static_cast<double>(figures.stats.host_bytes_in));
      std::fflush(stdout);
    }
  }
  std::printf(
      "| B17 | auto / the better of swap (%.2f s) and recompute (%.2f s), %.0f ms a copy more | %.3f | 1.2 | 1.1 |\n",
      best[0], best[1], copy_ms, best[2] / std::min(best[0], best[1]));
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
