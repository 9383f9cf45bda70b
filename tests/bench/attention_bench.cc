// Speed of paged attention with SmolLM2's heads over shuffled blocks: decode as bytes of K and V a second against plain
// reads of the same blocks in the same order, prefill as operations a second. Best and median of the rounds; processor
// time, too, which other processes disturb less.
//
//   attention_bench [threads=2] [rounds=9]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/base/check.h"
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
};
constexpr Case kCases[] = {
    {"decode", 1, 1, 160, 30}, {"decode", 32, 1, 160, 30}, {"decode", 64, 1, 1024, 4}, {"prefill", 1, 512, 512, 30}};

// One step's batch over caches of random f16 values.
class Workload {
 public:
  Workload(Backend& backend, const Case& c) : ops_(backend.ops()), case_(c) {
    const int32_t blocks = (c.context + kBlockSize - 1) / kBlockSize;
    kv_ = {.num_blocks = int64_t{blocks} * c.sequences,
           .block_size = kBlockSize,
           .num_kv_heads = kKvHeads,
           .head_dim = kHeadDim};
    std::mt19937 random(1);
    for (int32_t layer = 0; layer < c.layers; ++layer) {
      auto memory = backend.Allocate(kv_.num_blocks * kv_.bytes_per_block());
      QUIRE_CHECK(memory.ok());
      for (int64_t i = 0; i < memory->bytes() / 2; ++i) {
        memory->as<uint16_t>()[i] = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);
      }
      caches_.push_back(*std::move(memory));
    }
    tables_.resize(kv_.num_blocks);
    std::iota(tables_.begin(), tables_.end(), 0);
    std::shuffle(tables_.begin(), tables_.end(), random);
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

  double bytes() const { return 4.0 * case_.layers * case_.sequences * case_.context * kKvHeads * kHeadDim; }
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

void RunCase(Backend& backend, const char* isa, ThreadPool& pool, const Case& c, int rounds) {
  Workload work(backend, c);
  std::vector<double> wall, processor, read;
  for (int round = 0; round <= rounds; ++round) {
    const double cpu = ProcessSeconds();
    BenchClock::time_point begin = BenchClock::now();
    work.Attend();
    const double seconds = SecondsSince(begin), cpu_seconds = ProcessSeconds() - cpu;
    begin = BenchClock::now();
    work.Read(pool);
    if (round == 0) continue;
    read.push_back(SecondsSince(begin));
    wall.push_back(seconds);
    processor.push_back(cpu_seconds);
  }
  const double best = *std::min_element(wall.begin(), wall.end()), median = Median(wall);
  std::printf("%-7s %-7s %2d x %4d of %4d  best %8.3f median %8.3f processor %8.3f ms  ", isa, c.name, c.sequences,
              c.rows, c.context, best * 1e3, median * 1e3, *std::min_element(processor.begin(), processor.end()) * 1e3);
  if (c.rows == 1) {
    std::printf("%5.1f of %5.1f GB/s = %3.0f %%\n", work.bytes() / 1e9 / median, work.bytes() / 1e9 / Median(read),
                100 * Median(read) / median);
  } else {
    std::printf("%6.1f GFLOP/s\n", work.operations() / 1e9 / median);
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  ThreadPool pool(threads);
  for (const Case& c : kCases) {
    for (CpuIsa isa : AvailableCpuIsas()) {
      if (isa == CpuIsa::kScalar) continue;
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
