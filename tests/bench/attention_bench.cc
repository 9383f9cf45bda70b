// Speed of paged attention with SmolLM2's heads over shuffled blocks, for each type of KV cache: decode as bytes of K
// and V (scales included) a second against plain reads of the same blocks in the same order, prefill as operations a
// second. Best and median of the rounds, in which the types take turns; processor time, too, which other processes
// disturb less.
//
//   attention_bench [threads=2] [rounds=9] [isa, all by default]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/kv_layout.h"
#include "kernels/factory.h"
#include "tests/bench/bench_util.h"
#include "tests/bench/gemm_peak.h"

namespace quire {
namespace {

constexpr int32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kBlockSize = 32;

struct Case {
  const char* name;
  int32_t sequences, rows, context;  // of each sequence
  int32_t layers;                    // caches that take turns, as in a model
  int32_t shared = 0;                // tokens that all sequences begin with, in the same blocks
};
constexpr Case kCases[] = {{"decode", 1, 1, 160, 30},   {"decode", 32, 1, 160, 30},
                           {"decode", 64, 1, 1024, 4},  {"prefill", 1, 512, 512, 30},
                           {"decode", 4, 1, 1056, 30},  {"shared", 4, 1, 1056, 30, 1024},
                           {"decode", 16, 1, 1056, 12}, {"shared", 16, 1, 1056, 12, 1024}};

constexpr DType kTypes[] = {DType::kF16, DType::kBf16, DType::kI8};

// Blocks of random values, of magnitudes up to 2.
void FillBlocks(const PagedKvView& kv, std::mt19937& random, Buffer& memory) {
  const KvRunLayout layout = MakeKvRunLayout(kv.dtype, kv.block_size, kv.head_dim);
  for (int64_t at = 0; at < memory.bytes(); at += layout.bytes()) {
    std::byte* const run = memory.as<std::byte>() + at;
    auto* const halves = reinterpret_cast<uint16_t*>(run);
    for (int64_t i = 0; i < layout.k_scale(0) / 2; ++i) {
      const auto bits = static_cast<uint16_t>(random());
      halves[i] = kv.dtype == DType::kF16    ? (bits & 0x83ff) | 0x3800
                  : kv.dtype == DType::kBf16 ? (bits & 0x807f) | 0x3f00
                                             : bits;
    }
    if (layout.scale_bytes == 0) continue;
    for (int32_t row = 0; row < 2 * kv.block_size; ++row) {
      reinterpret_cast<float*>(run + layout.k_scale(row))[0] = 1.0f / 127;
    }
  }
}

// One step's batch over caches of random values.
class Workload {
 public:
  Workload(Backend& backend, const Case& c, DType type) : ops_(backend.ops()), case_(c) {
    const int32_t blocks = (c.context + kBlockSize - 1) / kBlockSize;
    kv_ = {.dtype = type,
           .num_blocks = int64_t{blocks} * c.sequences,
           .block_size = kBlockSize,
           .num_kv_heads = kKvHeads,
           .head_dim = kHeadDim};
    std::mt19937 random(1);
    for (int32_t layer = 0; layer < c.layers; ++layer) {
      auto memory = backend.Allocate(kv_.num_blocks * kv_.bytes_per_block());
      QUIRE_CHECK(memory.ok());
      FillBlocks(kv_, random, *memory);
      caches_.push_back(*std::move(memory));
    }
    tables_.resize(kv_.num_blocks);
    std::iota(tables_.begin(), tables_.end(), 0);
    std::shuffle(tables_.begin(), tables_.end(), random);
    for (int32_t s = 1; s < c.sequences; ++s) {
      std::copy_n(tables_.begin(), c.shared / kBlockSize, tables_.begin() + s * blocks);
    }
    cu_q_lens_ = {0};
    for (int32_t s = 0; s < c.sequences; ++s) cu_q_lens_.push_back(cu_q_lens_.back() + c.rows);
    context_lens_.assign(c.sequences, c.context);
    q_.resize(num_rows() * kHeads * kHeadDim);
    out_.resize(q_.size());
    for (float& value : q_) value = std::normal_distribution<float>()(random);
    plan_ = ops_.CreateAttentionPlan();
    const AttentionBatch batch = {cu_q_lens_, context_lens_, tables_, blocks};
    QUIRE_CHECK(ops_.PlanAttention(batch, *plan_).ok());
  }

  void Attend() {
    for (const Buffer& cache : caches_) {
      PagedAttentionParams params;
      params.plan = plan_.get();
      params.q = F32Matrix(q_.data(), num_rows(), kHeads * kHeadDim);
      params.kv = kv_;
      params.kv.data = cache.data();
      params.num_heads = kHeads;
      params.scale = 0.125f;
      params.out = F32Matrix(out_.data(), num_rows(), kHeads * kHeadDim);
      QUIRE_CHECK(ops_.PagedAttention(params).ok());
    }
  }

  void Read(ThreadPool& pool) const {
    const int64_t bytes = kv_.bytes_per_block() / kKvHeads;
    for (const Buffer& cache : caches_) {
      pool.ParallelFor(kv_.num_blocks * kKvHeads, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          ReadBytes(cache.as<std::byte>() + (tables_[i / kKvHeads] * kKvHeads + i % kKvHeads) * bytes, bytes);
        }
      });
    }
  }

  double bytes() const {
    const auto row_bytes = static_cast<double>(KvRowBytes(kv_.dtype, kHeadDim));
    return 2.0 * case_.layers * case_.sequences * case_.context * kKvHeads * row_bytes;
  }
  // Of causal attention, a multiply-add as two: scores and sums.
  double operations() const {
    const double keys = case_.context - (case_.rows - 1) / 2.0;
    return 4.0 * case_.layers * static_cast<double>(num_rows()) * keys * kHeads * kHeadDim;
  }

 private:
  int64_t num_rows() const { return int64_t{case_.sequences} * case_.rows; }

  Ops& ops_;
  const Case& case_;
  PagedKvView kv_;
  std::vector<Buffer> caches_;
  std::vector<int32_t> tables_, cu_q_lens_, context_lens_;
  std::vector<float> q_, out_;
  std::unique_ptr<AttentionPlan> plan_;
};

struct Samples {
  std::vector<double> wall, processor, read;

  void Add(Workload& work, ThreadPool& pool) {
    const double cpu = ProcessSeconds();
    BenchClock::time_point begin = BenchClock::now();
    work.Attend();
    wall.push_back(SecondsSince(begin));
    processor.push_back(ProcessSeconds() - cpu);
    begin = BenchClock::now();
    work.Read(pool);
    read.push_back(SecondsSince(begin));
  }
};

void Print(const char* isa, const Case& c, DType type, const Workload& work, const Samples& samples) {
  const auto best = [](const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); };
  const double median = Median(samples.wall), read = Median(samples.read);
  std::printf("%-7s %-4s %-7s %2d x %4d of %4d  best %8.3f median %8.3f processor %8.3f ms  ", isa, Name(type).data(),
              c.name, c.sequences, c.rows, c.context, best(samples.wall) * 1e3, median * 1e3,
              best(samples.processor) * 1e3);
  if (c.rows == 1) {
    std::printf("%5.1f of %5.1f GB/s = %3.0f %%\n", work.bytes() / 1e9 / median, work.bytes() / 1e9 / read,
                100 * read / median);
  } else {
    std::printf("%6.1f GFLOP/s\n", work.operations() / 1e9 / median);
  }
  std::fflush(stdout);
}

void RunCase(Backend& backend, const char* isa, ThreadPool& pool, const Case& c, int rounds) {
  std::vector<std::unique_ptr<Workload>> works;
  for (const DType type : kTypes) works.push_back(std::make_unique<Workload>(backend, c, type));
  std::vector<Samples> samples(works.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      if (round == 1) samples[i] = {};  // the first one warms up
      samples[i].Add(*works[i], pool);
    }
  }
  for (size_t i = 0; i < works.size(); ++i) Print(isa, c, kTypes[i], *works[i], samples[i]);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const std::string_view only = argc > 3 ? argv[3] : "";
  ThreadPool pool(threads);
  for (const Case& c : kCases) {
    for (CpuIsa isa : AvailableCpuIsas()) {
      if (only.empty() ? isa == CpuIsa::kScalar : Name(isa) != only) continue;
      auto backend = CreateBackend({.kind = DeviceKind::kCpu, .cpu_isa = isa, .num_threads = threads});
      QUIRE_CHECK(backend.ok());
      RunCase(**backend, Name(isa).data(), pool, c, rounds);
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
