// Speed of the whole engine on a model file: decode of 1, 8 and 32 streams, prefill of 512 tokens, and decode
// beside a busy thread, with the time split of the steps. The packed weights that the steps of one stream read a second
// are set against plain reads by as many threads of as many bytes, under the same memory advice, just before and after.
// Medians over rounds in which all cases take turns; disturbed ones (bench_util.h) are left out.
//
//   decode_bench MODEL [threads=2] [rounds=7] [streams, all=-1]

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/factory.h"
#include "scheduler/engine.h"
#include "tests/bench/bench_util.h"
#include "tests/bench/gemm_peak.h"

namespace quire {
namespace {

using StepSeconds = EngineStats::StepSeconds;

constexpr int32_t kPromptTokens = 129;  // of a decoding stream: four blocks from the prefix cache and a token
constexpr int32_t kOutputTokens = 33;
constexpr int32_t kPrefillTokens = 512;

struct Case {
  const char* name;
  int32_t streams;           // 0: prefill
  bool beside_busy = false;  // another thread wants a core all the time
};
constexpr Case kCases[] = {{"decode 1", 1},
                           {"decode 8", 8},
                           {"decode 32", 32},
                           {"prefill 512", 0},
                           {"decode 1 beside a busy thread", 1, true}};

// What one case gave in one round.
struct Sample {
  double tokens_per_second = 0;
  double read_gbps = 0;
  StepSeconds seconds;  // of the steps measured
  int64_t steps = 0;
};

StepSeconds operator-(const StepSeconds& a, const StepSeconds& b) {
  return {a.linear - b.linear,         a.attention - b.attention, a.sampling - b.sampling,
          a.scheduling - b.scheduling, a.rest - b.rest,           a.total - b.total};
}

// A thread that computes as long as it lives, if `on`.
class BusyThread {
 public:
  explicit BusyThread(bool on) {
    if (!on) return;
    thread_ = std::thread([this] {
      while (!stop_.load(std::memory_order_relaxed)) PeakOpsAvx2(1 << 12);
    });
  }
  ~BusyThread() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// One engine per instruction set.
class Path {
 public:
  Path(CpuIsa isa, double (*peak_ops)(int64_t), const std::string& model, int threads) : peak_{peak_ops}, isa_(isa) {
    EngineOptions options;
    options.model_path = model;
    options.cpu_isa = isa;
    options.num_threads = threads;
    options.kv_cache_bytes = int64_t{512} << 20;
    auto engine = CreateEngine(options);
    if (!engine.ok()) {
      std::fprintf(stderr, "%s\n", std::string(engine.status().message()).c_str());
      std::exit(1);
    }
    engine_ = *std::move(engine);
    engine_->Start();
  }

  const EngineInfo& info() const { return engine_->info(); }
  CpuIsa isa() const { return isa_; }
  PeakMeter& peak() { return peak_; }

  // Steps in which all streams gave a token, from the first one on.
  Sample Decode(int32_t streams) {
    for (int32_t s = 0; s < streams; ++s) Submit(Prompt(kPromptTokens, s), kOutputTokens);
    Sample sample;
    absl::Time first_time, last_time;
    EngineStats first, last;
    Drain(streams, [&](const StepOutputs& outputs) {
      if (outputs.sequences.size() != static_cast<size_t>(streams)) return;
      last_time = outputs.sequences[0].time;
      last = engine_->GetStats();
      if (++sample.steps == 1) first_time = last_time, first = last;
    });
    QUIRE_CHECK(sample.steps > 1);
    --sample.steps;
    sample.tokens_per_second =
        static_cast<double>(sample.steps * streams) / absl::ToDoubleSeconds(last_time - first_time);
    sample.seconds = last.total_step_seconds - first.total_step_seconds;
    sample.steps = last.steps - first.steps;
    return sample;
  }

  // One step with a prompt that the prefix cache does not know.
  Sample Prefill() {
    Submit(Prompt(kPrefillTokens, 1000 + num_prefills_++), 1);
    Sample sample;
    const EngineStats first = engine_->GetStats();
    const BenchClock::time_point begin = BenchClock::now();
    Drain(1, [](const StepOutputs&) {});
    sample.tokens_per_second = kPrefillTokens / SecondsSince(begin);
    const EngineStats last = engine_->GetStats();
    sample.seconds = last.total_step_seconds - first.total_step_seconds;
    sample.steps = last.steps - first.steps;
    return sample;
  }

 private:
  // Ids that differ from their first on for another `seed`.
  std::vector<int32_t> Prompt(int32_t length, int32_t seed) const {
    std::vector<int32_t> ids(length);
    uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (int32_t& id : ids) {
      state = state * 1664525u + 1013904223u;
      id = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(info().config.vocab_size));
    }
    return ids;
  }

  void Submit(std::vector<int32_t> prompt, int32_t max_tokens) {
    SamplingParams params;
    params.temperature = 0;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    EngineRequest request = MakeEngineRequest(std::move(prompt), params, info().block_size, info().key_context);
    request.handle = ++last_handle_;
    QUIRE_CHECK(engine_->Submit(std::move(request)).ok());
  }

  // Reads outputs until `requests` have ended.
  template <typename F>
  void Drain(int32_t requests, F&& each) {
    while (requests > 0) {
      const StepOutputs* outputs = engine_->outputs(0).Pop();
      QUIRE_CHECK(outputs != nullptr);
      for (const SequenceOutput& output : outputs->sequences) {
        QUIRE_CHECK(output.error.ok());
        if (output.request_finished) --requests;
      }
      each(*outputs);
      engine_->outputs(0).Release();
    }
    QUIRE_CHECK(engine_->WaitIdle(absl::Now() + absl::Seconds(60)));
  }

  PeakMeter peak_;
  CpuIsa isa_;
  std::unique_ptr<Engine> engine_;
  uint64_t last_handle_ = 0;
  int32_t num_prefills_ = 0;
};

void Print(const Path& path, const Case& c, const std::vector<Sample>& samples, int rounds) {
  std::printf("%-7s %-29s ", Name(path.isa()).data(), c.name);
  if (samples.empty()) {
    std::printf("disturbed throughout\n");
    return;
  }
  const auto median = [&](auto value) {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(value(sample));
    return Median(std::move(values));
  };
  const double rate = median([](const Sample& s) { return s.tokens_per_second; });
  double best = 0;
  for (const Sample& sample : samples) best = std::max(best, sample.tokens_per_second);
  std::printf("%6.0f tok/s (best %6.0f)  ", rate, best);
  if (c.streams == 1 && !c.beside_busy) {
    const double bytes = static_cast<double>(path.info().weight_bytes_per_step);
    const double read = median([](const Sample& s) { return s.read_gbps; });
    const double ratio = median([&](const Sample& s) { return s.tokens_per_second * bytes / 1e9 / s.read_gbps; });
    std::printf("%4.1f of %4.1f GB/s = %2.0f %%  ", rate * bytes / 1e9, read, 100 * ratio);
  }
  const auto ms = [&](double StepSeconds::*part) {
    return median([&](const Sample& s) { return 1e3 * s.seconds.*part / static_cast<double>(s.steps); });
  };
  std::printf("step %.2f ms: linear %.2f attention %.2f sampling %.2f scheduling %.3f rest %.2f  %zu of %d rounds\n",
              ms(&StepSeconds::total), ms(&StepSeconds::linear), ms(&StepSeconds::attention),
              ms(&StepSeconds::sampling), ms(&StepSeconds::scheduling), ms(&StepSeconds::rest), samples.size(), rounds);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: decode_bench MODEL [threads=2] [rounds=7] [streams, all=-1]\n");
    return 64;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  const int only_streams = argc > 4 ? std::atoi(argv[4]) : -1;
  std::vector<std::unique_ptr<Path>> paths;
  for (CpuIsa isa : AvailableCpuIsas()) {
    if (isa == CpuIsa::kScalar) continue;
    const auto peak_ops = isa == CpuIsa::kAvx2 ? &PeakOpsAvx2 : &PeakOpsAvx512;
    paths.push_back(std::make_unique<Path>(isa, peak_ops, argv[1], threads));
  }
  if (paths.empty()) return 0;
  ThreadPool pool(threads, /*pin=*/true);
  const MemoryReader reader(paths[0]->info().weight_bytes_per_step);
  constexpr size_t kNumCases = std::size(kCases);
  std::vector<std::vector<Sample>> samples(paths.size() * kNumCases);
  // The first round warms up: prompts enter the prefix cache, buffers get their sizes.
  for (int round = 0; round <= rounds; ++round) {
    for (size_t p = 0; p < paths.size(); ++p) {
      Path& path = *paths[p];
      for (size_t c = 0; c < kNumCases; ++c) {
        if (only_streams >= 0 && kCases[c].streams != only_streams) continue;
        const double before = path.peak().Measure(pool), read_before = reader.Measure(pool);
        Sample sample;
        const double processor = ProcessSeconds();
        const BenchClock::time_point begin = BenchClock::now();
        {
          const BusyThread busy(kCases[c].beside_busy);
          sample = kCases[c].streams > 0 ? path.Decode(kCases[c].streams) : path.Prefill();
        }
        const double share = (ProcessSeconds() - processor) / (SecondsSince(begin) * threads);
        sample.read_gbps = (read_before + reader.Measure(pool)) / 2;
        const double after = path.peak().Measure(pool);
        const bool disturbed = std::min(before, after) < kUndisturbed * path.peak().best_gops || share < kUndisturbed;
        if (round == 0 || disturbed) continue;
        samples[p * kNumCases + c].push_back(sample);
      }
    }
  }
  std::printf("weights %.1f MB a step, %d threads\n", static_cast<double>(paths[0]->info().weight_bytes_per_step) / 1e6,
              threads);
  for (size_t i = 0; i < samples.size(); ++i) {
    if (only_streams >= 0 && kCases[i % kNumCases].streams != only_streams) continue;
    Print(*paths[i / kNumCases], kCases[i % kNumCases], samples[i], rounds);
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
