#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/factory.h"
#include "model/tokenizer/incremental_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/bench/instruction_load.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

std::unique_ptr<Backend> Avx2Backend() {
  auto backend = CreateBackend({.cpu_isa = CpuIsa::kAvx2, .num_threads = 1});
  QUIRE_CHECK(backend.ok());
  return *std::move(backend);
}

TensorView View(std::vector<float>& values, int64_t rows) {
  return F32Matrix(values.data(), rows, static_cast<int64_t>(values.size()) / rows);
}

// A layer's widths in a format, `rows` rows of activations.
void Linear(WeightFormat format, int64_t rows) {
  constexpr int64_t kInputs = 576, kOutputs = 1'536;
  const std::unique_ptr<Backend> backend = Avx2Backend();
  Numbers numbers;
  std::vector<std::byte> data(kOutputs * RowBytes(format, kInputs));
  for (std::byte& b : data) b = static_cast<std::byte>(numbers.Below(256));
  for (size_t i = 0; i < data.size(); i += Info(format).block_bytes) {
    data[i + 1] = std::byte{0x20};  // a moderate scale, and minimum
    if (format == WeightFormat::kQ4_1) data[i + 3] = std::byte{0xa0};
  }
  const WeightView view = {format, kOutputs, kInputs, data.data(), RowBytes(format, kInputs)};
  auto weight = backend->ops().PackWeight({&view, 1});
  QUIRE_CHECK(weight.ok());
  std::vector<float> x = numbers.Floats(rows * kInputs), out(rows * kOutputs);
  const auto multiply = [&] {
    QUIRE_CHECK(backend->ops().Linear({View(x, rows), weight->get(), nullptr, View(out, rows)}).ok());
  };
  multiply();  // buffers grow
  Count(multiply);
}
void LinearRow() { Linear(WeightFormat::kQ4_1, 1); }
void LinearRows() { Linear(WeightFormat::kQ4_1, 32); }
void LinearRows8() { Linear(WeightFormat::kQ8_0, 32); }

// Grouped heads over a cache of f16, `rows` of one sequence at the end of `context` tokens.
void Attention(int32_t rows, int32_t context) {
  constexpr int32_t kHeads = 9, kKvHeads = 3, kDim = 64, kBlockSize = 32;
  const std::unique_ptr<Backend> backend = Avx2Backend();
  Ops& ops = backend->ops();
  PagedKvView kv{.num_blocks = (context + kBlockSize - 1) / kBlockSize,
                 .block_size = kBlockSize,
                 .num_kv_heads = kKvHeads,
                 .head_dim = kDim};
  auto memory = backend->Allocate(kv.num_blocks * kv.bytes_per_block());
  QUIRE_CHECK(memory.ok());
  Numbers numbers;
  for (int64_t i = 0; i < memory->bytes() / 2; ++i) {
    memory->as<uint16_t>()[i] = static_cast<uint16_t>(0x3000 + numbers.Below(0x800));
  }
  kv.data = memory->data();
  std::vector<int32_t> table(kv.num_blocks);
  std::iota(table.begin(), table.end(), 0);
  const std::vector<int32_t> cu_q_lens = {0, rows}, context_lens = {context};
  std::vector<float> q = numbers.Floats(int64_t{rows} * kHeads * kDim), out(q.size());
  const std::unique_ptr<AttentionPlan> plan = ops.CreateAttentionPlan();
  const auto attend = [&] {
    QUIRE_CHECK(ops.PlanAttention({cu_q_lens, context_lens, table, kv.num_blocks}, *plan).ok());
    PagedAttentionParams params;
    params.plan = plan.get();
    params.q = View(q, rows);
    params.kv = kv;
    params.num_heads = kHeads;
    params.scale = 0.125f;
    params.out = View(out, rows);
    QUIRE_CHECK(ops.PagedAttention(params).ok());
  };
  attend();
  Count(attend);
}
void AttentionRow() { Attention(1, 500); }
void AttentionRows() { Attention(64, 300); }

// Greedy, plainly drawn, drawn from a few and penalised rows, with log-probabilities.
void Sampler() {
  constexpr int32_t kVocab = 32'768, kRows = 4;
  const std::unique_ptr<Backend> backend = Avx2Backend();
  Numbers numbers;
  const std::vector<float> logits = numbers.Floats(int64_t{kRows} * kVocab);
  const std::vector<int32_t> tokens = Numbers().Ids(200);
  SamplingRules rules;
  rules.repetition_penalty = 1.1f;
  rules.frequency_penalty = 0.2f;
  std::vector<int32_t> known;
  for (const int32_t id : tokens) known.push_back(id % kVocab);
  const SampleExtras extras = {.rules = &rules, .tokens = known, .prompt_len = 100};
  const std::vector<SampleRow> rows = {
      {.logits_row = 0},
      {.logits_row = 1, .temperature = 0.8f, .seed = 7},
      {.logits_row = 2, .temperature = 1, .top_k = 40, .top_p = 0.9f, .seed = 8, .num_logprobs = 5},
      {.logits_row = 3, .temperature = 0.7f, .min_p = 0.05f, .seed = 9, .more = &extras}};
  std::vector<SampledToken> sampled(kRows);
  std::vector<TokenLogprob> logprobs;
  std::vector<float> row_logits = logits;
  const auto sample = [&] {
    logprobs.clear();
    SampleTokensParams params;
    params.logits = View(row_logits, kRows);
    params.rows = rows;
    params.sampled = absl::MakeSpan(sampled);
    params.logprobs = &logprobs;
    QUIRE_CHECK(backend->ops().SampleTokens(params).ok());
  };
  sample();
  row_logits = logits;
  Count(sample);
}

// Prose, code and other scripts, some 15 kB.
std::string SomeText() {
  const std::string pieces[] = {"The harbour was never meant to hold more than forty boats; in 1811 nobody asked. ",
                                "for (int i = 0; i < 10; ++i) {\n    total += values[i] * 3.25;\n}\n",
                                "Gr\xc3\xbc\xc3\x9f"
                                "e aus K\xc3\xb6ln, \xce\xba\xce\xb1\xce\xbb\xce\xb7\xce\xbc\xce\xad\xcf\x81\xce\xb1. ",
                                "\xe4\xbb\x8a\xe5\xa4\xa9\xe5\xa4\xa9\xe6\xb0\x94\xe5\xbe\x88\xe5\xa5\xbd\xe3\x80\x82"};
  std::string text;
  for (int i = 0; i < 70; ++i) {
    for (const std::string& piece : pieces) text += piece;
  }
  return text;
}

std::unique_ptr<Tokenizer> SmallTokenizer() {
  auto tokenizer = LoadTokenizer(testing::SourcePath("tests/data/tokenizers/smollm2"));
  QUIRE_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

void Encode() {
  const std::unique_ptr<Tokenizer> tokenizer = SmallTokenizer();
  const std::string text = SomeText();
  Count([&] { QUIRE_CHECK(tokenizer->Encode(text, false).ok()); });
}

void Decode() {
  const std::unique_ptr<Tokenizer> tokenizer = SmallTokenizer();
  const std::string text = SomeText();
  const auto ids = tokenizer->Encode(text, false);
  QUIRE_CHECK(ids.ok());
  std::string decoded;
  decoded.reserve(2 * text.size());
  IncrementalDecoder decoder(*tokenizer, true);
  Count([&] {
    for (const int32_t id : *ids) decoder.Push(id, &decoded);
    decoder.Flush(&decoded);
  });
  QUIRE_CHECK(decoded == text);
}

}  // namespace

absl::Span<const InstructionLoad> ComputeLoads() {
  static constexpr InstructionLoad kLoads[] = {{"linear_row", &LinearRow},
                                               {"linear_rows", &LinearRows},
                                               {"linear_rows_8", &LinearRows8},
                                               {"attention_row", &AttentionRow},
                                               {"attention_rows", &AttentionRows},
                                               {"sampler", &Sampler},
                                               {"tokenizer", &Encode},
                                               {"detokeniser", &Decode}};
  return kLoads;
}

}  // namespace quire
