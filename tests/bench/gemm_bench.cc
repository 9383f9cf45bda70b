// Speed of the CPU linear layers on SmolLM2's shapes, as a share of what the machine gives at the same moment: packed
// bytes a second against plain reads of the same memory in turn with them, operations a second against the peak of the
// path's own instructions. Medians. The caches hold no more than between the layers of a model, since every round walks
// over as many copies of the weight as 96 MB (a Q4_1 model file) take.
//
// First all linear layers of the model in turn, as a step makes it, against plain reads of as much memory.
//
//   gemm_bench [threads=2] [rows, all=0, that model only: minus rows]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/bench/bench_util.h"
#include "tests/bench/gemm_peak.h"

namespace quire {
namespace {

constexpr int64_t kFootprint = int64_t{96} << 20;
constexpr size_t kRounds = 11;
constexpr int kMaxRounds = 30;

struct Shape {
  const char* name;
  int64_t inputs, outputs;
};
constexpr Shape kShapes[] = {
    {"qkv", 576, 960}, {"o", 576, 576}, {"gate_up", 576, 3072}, {"down", 1536, 576}, {"head", 576, 49152}};

struct Path {
  const GemmKernels* kernels;
  PeakMeter peak;
};

// Packs a random weight.
std::unique_ptr<CpuPackedWeight> PackRandom(WeightFormat format, const Shape& shape, WeightArena& arena) {
  std::mt19937 random(1);
  std::vector<std::byte> data(shape.outputs * RowBytes(format, shape.inputs));
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  // Scales and minimums are moderate: speed must not depend on infinities or NaN.
  for (size_t i = 0; i < data.size(); i += Info(format).block_bytes) {
    data[i + 1] = std::byte{0x20};
    if (format == WeightFormat::kQ4_1) data[i + 3] = std::byte{0xa0};
  }
  auto packed =
      PackCpuWeight({{format, shape.outputs, shape.inputs, data.data(), RowBytes(format, shape.inputs)}}, arena);
  QUIRE_CHECK(packed.ok());
  return *std::move(packed);
}

// As many packed copies of a random weight as fill the footprint, one behind the other in memory.
struct Copies {
  WeightArena arena;
  std::vector<std::unique_ptr<CpuPackedWeight>> weights;

  Copies(WeightFormat format, const Shape& shape) {
    int64_t bytes = 0;
    do {
      weights.push_back(PackRandom(format, shape, arena));
      bytes += weights.back()->bytes();
    } while (bytes + weights.back()->bytes() <= kFootprint);
  }
};

using Weights = std::vector<std::unique_ptr<CpuPackedWeight>>;

// All layers in one run, as a step makes them.
void RunLayers(ThreadPool& pool, const Path& path, const Weights& weights, size_t count, int64_t rows,
               std::vector<float>& x, std::vector<float>& out, GemmScratch& scratch, Program& program) {
  const CpuKernels kernels = {*path.kernels, VectorKernelsScalar()};  // of the vector kernels none runs
  for (size_t i = 0; i < count; ++i) {
    LinearLayer layer;
    layer.weight = weights[i].get();
    layer.x = {x.data(), rows, layer.weight->cols()};
    layer.out = {out.data(), rows, layer.weight->rows()};
    QUIRE_CHECK(AddLinear(kernels, pool.num_threads(), layer, scratch, program).ok());
  }
  program.Run(pool);
}

// All threads read the weights once, in the pieces that a linear layer would take.
void ReadWeights(ThreadPool& pool, const Copies& copies, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const CpuPackedWeight::Part& part = copies.weights[i]->parts()[0];
    const int64_t tiles = part.num_tiles();
    pool.ParallelForShares(tiles, 1, tiles, [&](const ThreadPool::Piece& piece) {
      ReadBytes(part.tiles.data + piece.begin * part.tiles.tile_bytes,
                (piece.end - piece.begin) * part.tiles.tile_bytes);
    });
  }
}

void RunShape(ThreadPool& pool, std::vector<Path>& paths, WeightFormat format, const Shape& shape, int64_t only_rows) {
  const Copies copies(format, shape);
  for (int64_t rows : {1, 8, 32, 256}) {
    if (only_rows != 0 && rows != only_rows) continue;
    std::vector<float> x(rows * shape.inputs), out(rows * shape.outputs);
    std::mt19937 random(2);
    for (float& value : x) value = std::normal_distribution<float>(0, 1)(random);
    // From 32 rows on memory no longer matters, and passes over all copies would take long.
    const size_t count = rows < 32 ? copies.weights.size() : std::max<size_t>(1, copies.weights.size() / (rows / 8));
    for (Path& path : paths) {
      GemmScratch scratch;
      Program program;
      std::vector<double> work, read;
      int tries = 0;
      for (; tries < kMaxRounds && work.size() < kRounds; ++tries) {
        const double before = path.peak.Measure(pool);
        const double processor = ProcessSeconds();
        BenchClock::time_point begin = BenchClock::now();
        RunLayers(pool, path, copies.weights, count, rows, x, out, scratch, program);
        const double work_seconds = SecondsSince(begin) / static_cast<double>(count);
        begin = BenchClock::now();
        ReadWeights(pool, copies, count);
        const double read_seconds = SecondsSince(begin) / static_cast<double>(count);
        const double share = (ProcessSeconds() - processor) /
                             (static_cast<double>(count) * (work_seconds + read_seconds) * pool.num_threads());
        const double after = path.peak.Measure(pool);
        if (std::min(before, after) < kUndisturbed * path.peak.best_gops || share < kUndisturbed) continue;
        work.push_back(work_seconds);
        read.push_back(read_seconds);
      }
      if (work.empty()) {
        std::printf("%s %s M %lld: disturbed throughout\n", shape.name, path.kernels->name,
                    static_cast<long long>(rows));
        continue;
      }
      const double seconds = Median(work), bytes = static_cast<double>(copies.weights[0]->bytes());
      std::printf("%-5s %-8s %-7s M %3lld  %9.1f us  ", Info(format).name.data(), shape.name, path.kernels->name,
                  static_cast<long long>(rows), seconds * 1e6);
      if (rows < 32) {
        const double gbps = bytes / 1e9 / seconds, read_gbps = bytes / 1e9 / Median(read);
        std::printf("%5.1f of %5.1f GB/s = %3.0f %%  ", gbps, read_gbps, 100 * gbps / read_gbps);
      }
      const double gops = 2.0 * static_cast<double>(rows * shape.inputs * shape.outputs) / 1e9 / seconds;
      std::printf("%6.1f of %6.1f GOP/s = %3.0f %%  %zu of %d rounds\n", gops, path.peak.best_gops,
                  100 * gops / path.peak.best_gops, work.size(), tries);
      std::fflush(stdout);
    }
  }
}

// One pass over all linear layers of SmolLM2, Q4_1 with a Q8_0 head, as a step of one stream makes it.
void RunModel(ThreadPool& pool, std::vector<Path>& paths, int64_t rows) {
  constexpr int kLayers = 30;
  WeightArena arena;
  std::vector<std::unique_ptr<CpuPackedWeight>> weights;
  weights.push_back(PackRandom(WeightFormat::kQ8_0, kShapes[4], arena));
  for (int i = 0; i < kLayers; ++i) {
    for (int s = 0; s < 4; ++s) weights.push_back(PackRandom(WeightFormat::kQ4_1, kShapes[s], arena));
  }
  std::rotate(weights.begin(), weights.begin() + 1, weights.end());  // the head comes last
  double bytes = 0;
  for (const auto& weight : weights) bytes += static_cast<double>(weight->bytes());
  std::vector<float> x(rows * 1536), out(rows * 49152);
  std::mt19937 random(2);
  for (float& value : x) value = std::normal_distribution<float>(0, 1)(random);
  // Takes the time unless another process took the threads' cores meanwhile.
  const auto time = [&](std::vector<double>& seconds, auto&& pass) {
    pool.Run([](int) {});
    const double processor = ProcessSeconds();
    const BenchClock::time_point begin = BenchClock::now();
    pass();
    const double wall = SecondsSince(begin);
    if (ProcessSeconds() - processor > kUndisturbed * wall * pool.num_threads()) seconds.push_back(wall);
  };
  std::vector<std::vector<double>> work(paths.size());
  std::vector<double> read;
  GemmScratch scratch;
  Program program;
  const MemoryReader reader(static_cast<int64_t>(bytes));
  for (int round = 0; round < 2 * kMaxRounds; ++round) {
    for (size_t p = 0; p < paths.size(); ++p) {
      time(work[p], [&] {
        for (int pass = 0; pass < MemoryReader::kPasses; ++pass) {
          RunLayers(pool, paths[p], weights, weights.size(), rows, x, out, scratch, program);
        }
      });
    }
    read.push_back(reader.Measure(pool));
  }
  for (size_t p = 0; p < paths.size(); ++p) {
    std::printf("model         %-7s M %3lld  ", paths[p].kernels->name, static_cast<long long>(rows));
    if (work[p].empty()) {
      std::printf("disturbed throughout\n");
      continue;
    }
    const double seconds = Median(work[p]) / MemoryReader::kPasses, gbps = bytes / 1e9 / seconds,
                 read_gbps = Median(read);
    std::printf("%9.1f us  %5.1f of %5.1f GB/s = %3.0f %%  %zu of %d rounds\n", seconds * 1e6, gbps, read_gbps,
                100 * gbps / read_gbps, work[p].size(), 2 * kMaxRounds);
  }
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int64_t only_rows = argc > 2 ? std::atoi(argv[2]) : 0;
  ThreadPool pool(threads, /*pin=*/true);
  std::vector<Path> paths;
  if (GetCpuFeatures().avx2) paths.push_back({&GemmKernelsAvx2(), {&PeakOpsAvx2}});
  if (GetCpuFeatures().avx512_vnni) paths.push_back({&GemmKernelsAvx512(), {&PeakOpsAvx512}});
  // From 32 rows on memory no longer matters.
  const int64_t model_rows = only_rows == 0 ? 1 : std::abs(only_rows);
  if (model_rows < 32) RunModel(pool, paths, model_rows);
  if (only_rows < 0) return 0;
  for (WeightFormat format : {WeightFormat::kQ4_1, WeightFormat::kQ8_0}) {
    for (const Shape& shape : kShapes) RunShape(pool, paths, format, shape, only_rows);
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
