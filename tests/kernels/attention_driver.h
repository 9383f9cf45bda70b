#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/factory.h"

// Runs sequences through a backend's paged attention step by step, as an engine would.
namespace quire::testing {

inline std::unique_ptr<Backend> MakeBackend(DeviceKind kind, CpuIsa isa = CpuIsa::kAuto, int threads = 2) {
  auto backend = CreateBackend({.kind = kind, .cpu_isa = isa, .num_threads = threads});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// The same heads for all sequences of a run.
struct AttentionModel {
  int32_t num_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t head_dim = 16;
  float scale = 1;
  int32_t window = 0;
  float softcap = 0;
  std::vector<float> sinks = {};
  std::vector<float> slopes = {};

  int64_t q_width() const { return int64_t{num_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
};

// Values of every position: q [n, HQ * D], k and v [n, HKV * D].
struct AttentionSequence {
  int32_t length = 0;
  std::vector<float> q = {}, k = {}, v = {};
};

inline AttentionSequence RandomSequence(const AttentionModel& model, int32_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  AttentionSequence s{.length = length};
  s.q.resize(length * model.q_width());
  s.k.resize(length * model.kv_width());
  s.v.resize(length * model.kv_width());
  for (auto* values : {&s.q, &s.k, &s.v}) {
    for (float& value : *values) value = normal(random);
  }
  return s;
}

struct AttentionResult {
  std::vector<float> out;        // of all sequences, one behind the other: [n, HQ * D]
  std::vector<float> logsumexp;  // [n, HQ]
};

struct AttentionRun {
  DType kv_dtype = DType::kF32;
  int32_t block_size = 16;
  uint32_t seed = 1;  // of the blocks' places
  // Rows of a sequence in its n-th step: cycled through until it ends. Sequences end at different steps.
  std::vector<int32_t> rows_per_step = {1 << 20};
};

// Everything of the cache that no token was stored in is NaN, and so is what a block table names in place of blocks
// that have slid out of the window of all rows of the step.
class AttentionDriver {
 public:
  AttentionDriver(Backend& backend, const AttentionModel& model, const std::vector<AttentionSequence>& sequences,
                  const AttentionRun& run)
      : ops_(backend.ops()), model_(model), sequences_(sequences), run_(run) {
    int64_t longest = 0;
    for (const AttentionSequence& s : sequences) longest = std::max<int64_t>(longest, s.length);
    table_stride_ = (longest + run.block_size - 1) / run.block_size + 1;
    kv_ = {.dtype = run.kv_dtype,
           .num_blocks = table_stride_ * static_cast<int64_t>(sequences.size()) + 3,
           .block_size = run.block_size,
           .num_kv_heads = model.num_kv_heads,
           .head_dim = model.head_dim};
    auto memory = backend.Allocate(kv_.num_blocks * kv_.bytes_per_block());
    EXPECT_TRUE(memory.ok());
    memory_ = *std::move(memory);
    std::memset(memory_.data(), 0xff, memory_.bytes());
    kv_.data = memory_.data();
    std::vector<int32_t> blocks(kv_.num_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(run.seed));
    tables_.assign(blocks.begin(), blocks.begin() + table_stride_ * sequences.size());
    unused_block_ = blocks.back();
    plan_ = ops_.CreateAttentionPlan();
  }

  AttentionResult Run() {
    AttentionResult result;
    std::vector<int64_t> first(1, 0);  // flat row of each sequence's position 0
    for (const AttentionSequence& s : sequences_) first.push_back(first.back() + s.length);
    result.out.resize(first.back() * model_.q_width());
    result.logsumexp.resize(first.back() * model_.num_heads);
    std::vector<int32_t> done(sequences_.size(), 0);
    for (size_t step = 0;; ++step) {
      const int32_t rows = run_.rows_per_step[step % run_.rows_per_step.size()];
      if (!Step(rows, first, done, &result)) return result;
    }
  }

 private:
  bool Step(int32_t max_rows, const std::vector<int64_t>& first, std::vector<int32_t>& done, AttentionResult* result) {
    std::vector<int32_t> cu_q_lens = {0}, context_lens, tables, slots;
    std::vector<float> qkv;
    std::vector<int64_t> row_of;  // flat row of each row of the step
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int32_t rows = std::min(max_rows, sequences_[s].length - done[s]);
      if (rows == 0) continue;
      const int32_t* table = tables_.data() + s * table_stride_;
      for (int32_t p = done[s]; p < done[s] + rows; ++p) {
        Append(sequences_[s].q, p, model_.q_width(), &qkv);
        Append(sequences_[s].k, p, model_.kv_width(), &qkv);
        Append(sequences_[s].v, p, model_.kv_width(), &qkv);
        slots.push_back(table[p / run_.block_size] * run_.block_size + p % run_.block_size);
        row_of.push_back(first[s] + p);
      }
      const int32_t slid_out = model_.window > 0 ? std::max(0, done[s] - model_.window + 1) / run_.block_size : 0;
      done[s] += rows;
      cu_q_lens.push_back(cu_q_lens.back() + rows);
      context_lens.push_back(done[s]);
      tables.insert(tables.end(), slid_out, unused_block_);
      tables.insert(tables.end(), table + slid_out, table + table_stride_);
    }
    if (slots.empty()) return false;
    const int64_t num_rows = static_cast<int64_t>(slots.size()), width = model_.q_width() + 2 * model_.kv_width();
    const F32Matrix qkv_view(qkv.data(), num_rows, width);
    EXPECT_TRUE(ops_.RopeAndStoreKv({.qkv = qkv_view,
                                     .num_heads = model_.num_heads,
                                     .cos_sin = F32Matrix(nullptr, num_rows, 0),
                                     .slot_mapping = slots,
                                     .kv = kv_})
                    .ok());
    const absl::Status planned = ops_.PlanAttention({.cu_q_lens = cu_q_lens,
                                                     .context_lens = context_lens,
                                                     .block_tables = tables,
                                                     .block_table_stride = table_stride_},
                                                    *plan_);
    EXPECT_TRUE(planned.ok()) << planned;
    std::vector<float> out(num_rows * model_.q_width()), logsumexp(num_rows * model_.num_heads);
    const absl::Status attended =
        ops_.PagedAttention({.plan = plan_.get(),
                             .q = qkv_view.slice_cols(0, model_.q_width()),
                             .kv = kv_,
                             .num_heads = model_.num_heads,
                             .scale = model_.scale,
                             .window = model_.window,
                             .logit_softcap = model_.softcap,
                             .sinks = model_.sinks.empty() ? nullptr : model_.sinks.data(),
                             .alibi_slopes = model_.slopes.empty() ? nullptr : model_.slopes.data(),
                             .out = F32Matrix(out.data(), num_rows, model_.q_width()),
                             .logsumexp = F32Matrix(logsumexp.data(), num_rows, model_.num_heads)});
    EXPECT_TRUE(attended.ok()) << attended;
    for (int64_t r = 0; r < num_rows; ++r) {
      std::copy_n(out.data() + r * model_.q_width(), model_.q_width(),
                  result->out.data() + row_of[r] * model_.q_width());
      std::copy_n(logsumexp.data() + r * model_.num_heads, model_.num_heads,
                  result->logsumexp.data() + row_of[r] * model_.num_heads);
    }
    return true;
  }

  static void Append(const std::vector<float>& values, int64_t row, int64_t width, std::vector<float>* to) {
    to->insert(to->end(), values.begin() + row * width, values.begin() + (row + 1) * width);
  }

  Ops& ops_;
  const AttentionModel& model_;
  const std::vector<AttentionSequence>& sequences_;
  const AttentionRun run_;
  int64_t table_stride_ = 0;
  PagedKvView kv_;
  Buffer memory_;
  std::vector<int32_t> tables_;
  int32_t unused_block_ = 0;
  std::unique_ptr<AttentionPlan> plan_;
};

inline AttentionResult RunAttention(Backend& backend, const AttentionModel& model,
                                    const std::vector<AttentionSequence>& sequences, const AttentionRun& run) {
  return AttentionDriver(backend, model, sequences, run).Run();
}

}  // namespace quire::testing
