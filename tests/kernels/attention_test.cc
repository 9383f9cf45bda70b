#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/attention_driver.h"
#include "tests/kernels/stored_kv.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire {
namespace {

using testing::AttentionModel;
using testing::AttentionResult;
using testing::AttentionRun;
using testing::AttentionSequence;
using testing::MakeBackend;
using testing::RunAttention;

// A reference case as a sequence: queries of positions before the given ones are zeros.
struct ReferenceCase {
  AttentionModel model;
  AttentionSequence sequence;
  int32_t first_row = 0;  // of the expected ones
  std::vector<double> out, logsumexp;
};

ReferenceCase ParseCase(const nlohmann::json& c) {
  ReferenceCase r;
  r.model = {.num_heads = c["heads"],
             .num_kv_heads = c["kv_heads"],
             .head_dim = c["head_dim"],
             .scale = c["scale"],
             .window = c.value("window", 0),
             .softcap = c.value("softcap", 0.0f),
             .sinks = c.value("sinks", std::vector<float>()),
             .slopes = c.value("alibi_slopes", std::vector<float>())};
  r.sequence.length = c["tk"];
  r.first_row = r.sequence.length - c["tq"].get<int32_t>();
  r.sequence.q.assign(r.first_row * r.model.q_width(), 0);
  for (float value : c["q"].get<std::vector<float>>()) r.sequence.q.push_back(value);
  r.sequence.k = c["k"].get<std::vector<float>>();
  r.sequence.v = c["v"].get<std::vector<float>>();
  r.out = c["out"].get<std::vector<double>>();
  r.logsumexp = c["logsumexp"].get<std::vector<double>>();
  return r;
}

void ExpectNear(const ReferenceCase& c, const AttentionResult& actual, double tolerance) {
  for (size_t i = 0; i < c.out.size(); ++i) {
    ASSERT_NEAR(actual.out[c.first_row * c.model.q_width() + i], c.out[i], tolerance * (1 + std::abs(c.out[i]))) << i;
  }
  for (size_t i = 0; i < c.logsumexp.size(); ++i) {
    ASSERT_NEAR(actual.logsumexp[c.first_row * c.model.num_heads + i], c.logsumexp[i],
                tolerance * (1 + std::abs(c.logsumexp[i])))
        << i;
  }
}

struct Target {
  DeviceKind kind;
  CpuIsa isa;
  DType kv_dtype;
  double tolerance;
};

std::vector<Target> Targets() {
  std::vector<Target> targets = {{DeviceKind::kReference, CpuIsa::kAuto, DType::kF32, 1e-5}};
  for (CpuIsa isa : AvailableCpuIsas()) {
    targets.push_back({DeviceKind::kCpu, isa, DType::kF32, 1e-5});
    targets.push_back({DeviceKind::kCpu, isa, DType::kF16, 1e-2});
  }
  return targets;
}

TEST(AttentionTest, ReferenceCases) {
  const auto path = testing::RefPath("numeric/attention.json");
  if (!path) GTEST_SKIP() << "no numeric/attention.json";
  int checked = 0;
  const nlohmann::json cases = testing::ReadJson(*path)["cases"];
  for (const auto& json : cases) {
    if (json.contains("full")) continue;  // not causal: no such op
    const ReferenceCase c = ParseCase(json);
    for (const Target& target : Targets()) {
      auto backend = MakeBackend(target.kind, target.isa);
      for (int32_t block_size : {1, 8, 16, 32, 64}) {
        SCOPED_TRACE(json["name"].get<std::string>() + " on " + backend->Describe() + " block " +
                     std::to_string(block_size));
        const AttentionRun run{.kv_dtype = target.kv_dtype, .block_size = block_size};
        // Scores of some hundreds turn f16's rounding of keys into factors.
        const bool loose = json["name"] == "large_scores" && target.kv_dtype == DType::kF16;
        ExpectNear(c, RunAttention(*backend, c.model, {c.sequence}, run), loose ? 0.2 : target.tolerance);
      }
    }
    ++checked;
  }
  EXPECT_GE(checked, 16);
}

// Softmax attention in double, of what the cache holds.
AttentionResult Oracle(const AttentionModel& m, const AttentionSequence& s) {
  AttentionResult result;
  for (int32_t p = 0; p < s.length; ++p) {
    for (int32_t h = 0; h < m.num_heads; ++h) {
      const int64_t kv_head = h / (m.num_heads / m.num_kv_heads), dim = m.head_dim;
      const int32_t first = m.window > 0 ? std::max(0, p - m.window + 1) : 0;
      std::vector<double> scores;
      double max = m.sinks.empty() ? -1e300 : m.sinks[h];
      for (int32_t j = first; j <= p; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += static_cast<double>(s.q[p * m.q_width() + h * dim + i]) * s.k[j * m.kv_width() + kv_head * dim + i];
        }
        dot *= m.scale;
        if (m.softcap > 0) dot = m.softcap * std::tanh(dot / m.softcap);
        if (!m.slopes.empty()) dot += static_cast<double>(m.slopes[h]) * (j - p);
        scores.push_back(dot);
        max = std::max(max, dot);
      }
      double sum = m.sinks.empty() ? 0 : std::exp(m.sinks[h] - max);
      for (double& score : scores) sum += score = std::exp(score - max);
      for (int64_t i = 0; i < dim; ++i) {
        double out = 0;
        for (int32_t j = first; j <= p; ++j) {
          out += scores[j - first] / sum * s.v[j * m.kv_width() + kv_head * dim + i];
        }
        result.out.push_back(static_cast<float>(out));
      }
      result.logsumexp.push_back(static_cast<float>(max + std::log(sum)));
    }
  }
  return result;
}

// Shapes and features beyond the reference cases: several chunks of keys, odd head sizes, large groups.
std::vector<std::pair<std::string, AttentionModel>> Models() {
  const std::vector<float> six = {0.3f, -1.2f, 2.0f, 0.0f, 0.7f, -0.5f};
  return {
      {"gqa d40", {.num_heads = 6, .num_kv_heads = 2, .head_dim = 40, .scale = 0.16f}},
      {"smollm2 d64", {.num_heads = 9, .num_kv_heads = 3, .head_dim = 64, .scale = 0.125f}},
      {"mqa 50 heads d8", {.num_heads = 50, .num_kv_heads = 1, .head_dim = 8, .scale = 0.35f}},
      {"mha d2", {.num_heads = 2, .num_kv_heads = 2, .head_dim = 2, .scale = 0.7f}},
      {"window, sinks d20",
       {.num_heads = 6, .num_kv_heads = 3, .head_dim = 20, .scale = 0.22f, .window = 70, .sinks = six}},
      {"window of more than a chunk",
       {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .scale = 0.25f, .window = 300}},
      {"window of one", {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .scale = 0.25f, .window = 1}},
      {"softcap d24", {.num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .scale = 0.5f, .softcap = 3}},
      {"alibi d256",
       {.num_heads = 6,
        .num_kv_heads = 6,
        .head_dim = 256,
        .scale = 0.0625f,
        .slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 1, 0.01f}}},
  };
}

TEST(AttentionTest, MatchesDoubleOnManyShapes) {
  for (const auto& [name, model] : Models()) {
    const int32_t length = testing::kSanitized || model.num_heads > 9 ? 280 : 530;  // the oracle takes its square
    const AttentionSequence sequence = testing::RandomSequence(model, length, 3);
    const AttentionResult expected = Oracle(model, sequence);
    for (DeviceKind kind : {DeviceKind::kReference, DeviceKind::kCpu}) {
      auto backend = MakeBackend(kind);
      const AttentionResult actual = RunAttention(*backend, model, {sequence}, {.block_size = 32});
      SCOPED_TRACE(name + " on " + backend->Describe());
      for (size_t i = 0; i < expected.out.size(); ++i) ASSERT_NEAR(actual.out[i], expected.out[i], 1e-5) << i;
      for (size_t i = 0; i < expected.logsumexp.size(); ++i) {
        ASSERT_NEAR(actual.logsumexp[i], expected.logsumexp[i], 1e-5) << i;
      }
    }
  }
}

AttentionSequence Stored(const AttentionModel& model, AttentionSequence sequence, DType type) {
  for (auto* rows : {&sequence.k, &sequence.v}) {
    for (size_t i = 0; i < rows->size(); i += model.head_dim) {
      testing::RoundToStored(type, rows->data() + i, model.head_dim);
    }
  }
  return sequence;
}

TEST(AttentionTest, ReadsWhatEachTypeOfCacheStores) {
  const auto models = Models();
  for (const size_t m : {0, 1, 4, 8}) {
    const auto& [name, model] = models[m];
    const AttentionSequence sequence = testing::RandomSequence(model, 275, 4);
    for (DType type : {DType::kF16, DType::kBf16, DType::kI8}) {
      const AttentionResult expected = Oracle(model, Stored(model, sequence, type));
      for (CpuIsa isa : AvailableCpuIsas()) {
        auto backend = MakeBackend(DeviceKind::kCpu, isa);
        SCOPED_TRACE(name + " on " + backend->Describe() + " kv " + std::string(Name(type)));
        // Prefill, then one row at a time: another way through the cache.
        const AttentionRun run{.kv_dtype = type, .block_size = 8, .rows_per_step = {268, 1}};
        const AttentionResult actual = RunAttention(*backend, model, {sequence}, run);
        for (size_t i = 0; i < expected.out.size(); ++i) ASSERT_NEAR(actual.out[i], expected.out[i], 1e-5) << i;
        for (size_t i = 0; i < expected.logsumexp.size(); ++i) {
          ASSERT_NEAR(actual.logsumexp[i], expected.logsumexp[i], 1e-5) << i;
        }
      }
    }
  }
}

// A row of K or V that is not finite reaches those who see it, and nobody else.
TEST(AttentionTest, WhatIsNotFiniteInAnInt8CacheIsSeenByLaterRowsOnly) {
  const AttentionModel model = {.num_heads = 3, .num_kv_heads = 1, .head_dim = 24, .scale = 0.2f};
  const AttentionSequence sequence = testing::RandomSequence(model, 60, 6);
  for (const bool in_values : {false, true}) {
    AttentionSequence broken = sequence;
    (in_values ? broken.v : broken.k)[40 * model.kv_width() + 7] = in_values ? INFINITY : NAN;
    for (CpuIsa isa : AvailableCpuIsas()) {
      auto backend = MakeBackend(DeviceKind::kCpu, isa);
      for (int32_t rows : {60, 1}) {
        const AttentionRun run{.kv_dtype = DType::kI8, .rows_per_step = {rows}};
        const AttentionResult whole = RunAttention(*backend, model, {sequence}, run);
        const AttentionResult actual = RunAttention(*backend, model, {broken}, run);
        for (size_t i = 0; i < actual.out.size(); ++i) {
          if (i < 40 * static_cast<size_t>(model.q_width())) {
            ASSERT_EQ(actual.out[i], whole.out[i]) << i;
          } else {
            ASSERT_TRUE(std::isnan(actual.out[i])) << i;
          }
        }
      }
    }
  }
}

void ExpectSameBits(const AttentionResult& expected, const AttentionResult& actual, size_t out_offset = 0,
                    size_t logsumexp_offset = 0) {
  for (size_t i = 0; i < actual.out.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(expected.out[out_offset + i]), std::bit_cast<uint32_t>(actual.out[i])) << i;
  }
  for (size_t i = 0; i < actual.logsumexp.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(expected.logsumexp[logsumexp_offset + i]),
              std::bit_cast<uint32_t>(actual.logsumexp[i]))
        << i;
  }
}

// Prefill, chunked prefill and decode; alone and in a batch; any block size, placement, number of threads and
// instruction set: the same bits.
TEST(AttentionTest, BitsDependOnTheRowAlone) {
  for (CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const auto isas = AvailableCpuIsas();
    if (std::find(isas.begin(), isas.end(), isa) == isas.end()) std::printf("skipped: no %s here\n", Name(isa).data());
  }
  auto models = Models();
  if (testing::kSanitized) models.resize(1);
  for (size_t m = 0; m < models.size(); ++m) {
    const auto& [name, model] = models[m];
    std::vector<DType> kv_dtypes = {DType::kF32, DType::kF16};
    if (m < 2) kv_dtypes.insert(kv_dtypes.end(), {DType::kBf16, DType::kI8});
    const std::vector<AttentionSequence> batch = {testing::RandomSequence(model, 270, 1),
                                                  testing::RandomSequence(model, 17, 2),
                                                  testing::RandomSequence(model, 1, 3)};
    for (DType kv_dtype : kv_dtypes) {
      auto scalar = MakeBackend(DeviceKind::kCpu, CpuIsa::kScalar, 1);
      const AttentionResult expected = RunAttention(*scalar, model, batch, {.kv_dtype = kv_dtype});
      uint32_t seed = 10;
      for (CpuIsa isa : AvailableCpuIsas()) {
        for (int threads : {1, 3}) {
          auto backend = MakeBackend(DeviceKind::kCpu, isa, threads);
          const std::vector<std::vector<int32_t>> chunkings = {{1000}, {1}, {37, 5, 64, 1}};
          for (size_t c = 0; c < chunkings.size(); ++c) {
            AttentionRun run{.kv_dtype = kv_dtype,
                             .block_size = std::vector<int32_t>{1, 8, 16, 32, 64}[seed % 5],
                             .seed = seed,
                             .rows_per_step = chunkings[c]};
            ++seed;
            if (isa == CpuIsa::kScalar && (c == 1 || threads == 1)) continue;  // slow
            SCOPED_TRACE(name + " on " + backend->Describe() + " chunking " + std::to_string(c) + " kv " +
                         std::string(Name(kv_dtype)) + " block " + std::to_string(run.block_size));
            ExpectSameBits(expected, RunAttention(*backend, model, batch, run));
            ExpectSameBits(expected, RunAttention(*backend, model, {batch[1]}, run), 270 * model.q_width(),
                           270 * model.num_heads);
          }
        }
      }
    }
  }
}

// Long contexts: more than two chunks, split over threads and merged.
TEST(AttentionTest, SplitByChunksGivesTheSameBits) {
  const AttentionModel model = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .scale = 0.18f};
  const std::vector<AttentionSequence> long_one = {testing::RandomSequence(model, 1100, 5)};
  auto one_thread = MakeBackend(DeviceKind::kCpu, CpuIsa::kAuto, 1);
  for (DType kv_dtype : {DType::kF32, DType::kI8}) {
    const AttentionResult expected = RunAttention(*one_thread, model, long_one, {.kv_dtype = kv_dtype});
    for (int threads : {2, 5}) {
      auto backend = MakeBackend(DeviceKind::kCpu, CpuIsa::kAuto, threads);
      const AttentionRun run{.kv_dtype = kv_dtype, .rows_per_step = {7, 600, 1, 33, 5}};
      ExpectSameBits(expected, RunAttention(*backend, model, long_one, run));
    }
  }
}

TEST(AttentionTest, RefusesWhatDoesNotFit) {
  for (DeviceKind kind : {DeviceKind::kReference, DeviceKind::kCpu}) {
    auto backend = MakeBackend(kind);
    Ops& ops = backend->ops();
    auto plan = ops.CreateAttentionPlan();
    const std::vector<int32_t> cu = {0, 2}, lens = {2}, short_lens = {1}, table = {0, 5};
    EXPECT_EQ(
        ops.PlanAttention({.cu_q_lens = cu, .context_lens = short_lens, .block_tables = table, .block_table_stride = 1},
                          *plan)
            .message(),
        "PlanAttention: sequence 0 has 2 rows, expected 1..1 (its context)");
    ASSERT_TRUE(ops.PlanAttention(
                       {.cu_q_lens = cu, .context_lens = lens, .block_tables = table, .block_table_stride = 2}, *plan)
                    .ok());
    std::vector<float> cache(4 * 2 * 16 * 4), q(2 * 4), out(2 * 4);
    PagedAttentionParams params;
    params.plan = plan.get();
    params.q = F32Matrix(q.data(), 2, 4);
    params.out = F32Matrix(out.data(), 2, 4);
    params.num_heads = 1;
    params.scale = 1;
    params.kv = {
        .data = cache.data(), .dtype = DType::kF32, .num_blocks = 4, .block_size = 1, .num_kv_heads = 1, .head_dim = 4};
    EXPECT_EQ(ops.PagedAttention(params).message(), "PagedAttention: block_tables[1] is 5, expected 0..3");
    params.kv.block_size = 12;
    EXPECT_EQ(ops.PagedAttention(params).message(), "PagedAttention: block_size is 12, expected 1, 8, 16, 32 or 64");
    params.kv.block_size = 16;
    params.num_heads = 2;
    EXPECT_EQ(ops.PagedAttention(params).message(), "PagedAttention: q is [2, 4], expected [2, 8]");
    params.num_heads = 1;
    params.kv.dtype = DType::kFp8E4m3;
    EXPECT_EQ(ops.PagedAttention(params).message(),
              kind == DeviceKind::kReference
                  ? "PagedAttention: KV cache is fp8_e4m3, expected f32"
                  : "PagedAttention: KV cache is fp8_e4m3, expected f32 or f16 or bf16 or int8");
    std::vector<float> qkv(3 * 4);
    const std::vector<int32_t> slots = {0};
    RopeAndStoreKvParams store;
    store.qkv = F32Matrix(qkv.data(), 1, 12);
    store.cos_sin = F32Matrix(nullptr, 1, 0);
    store.num_heads = 1;
    store.slot_mapping = slots;
    store.kv = params.kv;
    EXPECT_THAT(std::string(ops.RopeAndStoreKv(store).message()),
                ::testing::HasSubstr("RopeAndStoreKv: KV cache is fp8_e4m3, expected f"));
    params.kv.dtype = DType::kF32;
    EXPECT_TRUE(ops.PagedAttention(params).ok());
  }
}

}  // namespace
}  // namespace quire
