#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/philox.h"
#include "kernels/factory.h"
#include "tests/kernels/special_floats.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::vector<float> LogitsOf(const Json& values) {
  std::vector<float> logits;
  for (const Json& value : values) logits.push_back(value.is_null() ? -kInfinity : value.get<float>());
  return logits;
}

std::vector<float> RandomLogits(int size, uint32_t seed, float scale = 4) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Fixture {
  explicit Fixture(int threads = 2) : pool(threads), scratch(threads) {}

  absl::Status Sample(std::vector<float> logits, int64_t vocab, const std::vector<SampleRow>& rows,
                      const std::vector<ScoreRow>& scores = {}) {
    sampled.assign(rows.size(), {});
    scored.assign(scores.size(), {});
    logprobs.clear();
    SampleTokensParams params;
    params.logits = F32Matrix(logits.data(), static_cast<int64_t>(logits.size()) / vocab, vocab);
    params.rows = rows;
    params.sampled = absl::MakeSpan(sampled);
    params.scores = scores;
    params.scored = absl::MakeSpan(scored);
    params.logprobs = &logprobs;
    return SampleTokens(params, pool, absl::MakeSpan(scratch));
  }

  ThreadPool pool;
  std::vector<SamplingScratch> scratch;
  std::vector<SampledToken> sampled, scored;
  std::vector<TokenLogprob> logprobs;
};

TEST(SamplingTest, RefusesMoreLogprobsThanIndicesReach) {
  Fixture fixture;
  constexpr int64_t kVocab = int64_t{1} << 20;
  const std::vector<SampleRow> rows(2048, SampleRow{.num_logprobs = -1});
  const absl::Status status = fixture.Sample(std::vector<float>(kVocab), kVocab, rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(fixture.logprobs.empty());
}

TEST(SamplingTest, RawLogprobsOfTheReference) {
  const auto path = testing::RefPath("sampling.jsonl");
  if (!path) GTEST_SKIP() << "no sampling.jsonl";
  Fixture fixture;
  for (const Json& c : testing::ReadJsonLines(*path)) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<float> logits = LogitsOf(c["logits"]);
    ASSERT_TRUE(fixture.Sample(logits, static_cast<int64_t>(logits.size()), {SampleRow{.num_logprobs = 20}}).ok());
    const SampledToken& token = fixture.sampled[0];
    const Json& expected = c["logprobs_raw"];
    ASSERT_EQ(token.logprobs_count, static_cast<int32_t>(expected.size()) + 1);
    EXPECT_EQ(token.rank, 1);
    EXPECT_EQ(fixture.logprobs[token.logprobs_begin].token_id, token.token_id);
    for (size_t i = 0; i < expected.size(); ++i) {
      const TokenLogprob& actual = fixture.logprobs[token.logprobs_begin + 1 + i];
      EXPECT_EQ(actual.token_id, expected[i][0].get<int32_t>());
      EXPECT_NEAR(actual.logprob, expected[i][1].get<double>(), 1e-5);
    }
  }
}

TEST(SamplingTest, BadLogits) {
  Fixture fixture;
  const float inf = kInfinity;
  const std::vector<float> logits = {1,    2,    kNan, 3, 4,    0, inf, 0,    0, 0,    -inf, -inf, -inf,
                                     -inf, -inf, 1,    5, -inf, 2, 0,   -inf, 7, -inf, -inf, -inf};
  const int32_t banned[] = {1};
  const SampleExtras bans{.banned_ids = banned};
  std::vector<SampleRow> rows;
  for (int32_t r = 0; r < 5; ++r) rows.push_back({.logits_row = r, .num_logprobs = 2, .more = &bans});
  rows.push_back({.logits_row = 4});
  ASSERT_TRUE(
      fixture.Sample(logits, 5, rows, {{.logits_row = 0, .target_id = 1}, {.logits_row = 3, .target_id = 2}}).ok());
  const std::vector<bool> bad = {true, true, true, false, true, false};
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(fixture.sampled[i].bad_logits, bad[i]) << i;
    if (bad[i]) {
      EXPECT_EQ(fixture.sampled[i].token_id, -1) << i;
      EXPECT_EQ(fixture.sampled[i].logprobs_count, 0) << i;
    }
  }
  EXPECT_EQ(fixture.sampled[3].token_id, 3);  // 1 is the best, but banned
  EXPECT_EQ(fixture.sampled[3].rank, 2);
  EXPECT_EQ(fixture.logprobs[fixture.sampled[3].logprobs_begin + 1].token_id, 1);  // raw: before the ban
  EXPECT_EQ(fixture.sampled[5].token_id, 1);
  EXPECT_TRUE(fixture.scored[0].bad_logits);
  EXPECT_FALSE(fixture.scored[1].bad_logits);
  EXPECT_EQ(fixture.scored[1].rank, 5);
  EXPECT_EQ(fixture.logprobs[fixture.scored[1].logprobs_begin].logprob, -inf);
}

std::vector<uint32_t> MaskOf(int64_t vocab, const std::vector<int32_t>& allowed) {
  std::vector<uint32_t> mask((vocab + 31) / 32, 0);
  for (const int32_t id : allowed) mask[id / 32] |= uint32_t{1} << (id % 32);
  return mask;
}

// The same as banning all other ids, in every way through the selection and at every edge of a word.
TEST(SamplingTest, AllowedMaskIsAsBanningTheOthers) {
  constexpr int32_t kVocab = 101;
  const std::vector<float> logits = RandomLogits(kVocab, 3);
  for (const std::vector<int32_t>& allowed :
       {std::vector<int32_t>{0}, {31, 32}, {63, 64, 95, 96, 100}, {1, 2, 3, 5, 8, 13, 21, 34, 55, 89}}) {
    const std::vector<uint32_t> mask = MaskOf(kVocab, allowed);
    std::vector<int32_t> others;
    for (int32_t id = 0; id < kVocab; ++id) {
      if (std::find(allowed.begin(), allowed.end(), id) == allowed.end()) others.push_back(id);
    }
    for (SampleRow row : {SampleRow{}, SampleRow{.temperature = 1}, SampleRow{.temperature = 0.7f, .top_k = 4},
                          SampleRow{.temperature = 2, .top_p = 0.8f}, SampleRow{.temperature = 1, .min_p = 0.1f}}) {
      const SampleExtras masked{.allowed_mask = mask}, bans{.banned_ids = others};
      SampleRow banning = row;
      row.more = &masked;
      banning.more = &bans;
      const std::vector<double> probabilities = FinalProbabilities(logits, row);
      EXPECT_EQ(probabilities, FinalProbabilities(logits, banning));
      double sum = 0;
      for (const int32_t id : allowed) sum += probabilities[id];
      EXPECT_NEAR(sum, 1, 1e-6);
    }
  }
}

TEST(SamplingTest, AllowedMaskThatLeavesNothingIsBadLogits) {
  Fixture fixture;
  const std::vector<float> logits = {1, 2, -kInfinity, 3, 1, 2, 3, 4};
  const std::vector<uint32_t> impossible = MaskOf(4, {2}), second = MaskOf(4, {1});
  const int32_t banned[] = {1};
  const SampleExtras none{.allowed_mask = impossible}, the_banned{.banned_ids = banned, .allowed_mask = second},
      one{.allowed_mask = second};
  ASSERT_TRUE(fixture
                  .Sample(logits, 4,
                          {{.logits_row = 0, .more = &none},
                           {.logits_row = 0, .more = &the_banned},
                           {.logits_row = 1, .num_logprobs = 1, .more = &one}})
                  .ok());
  EXPECT_TRUE(fixture.sampled[0].bad_logits);
  EXPECT_TRUE(fixture.sampled[1].bad_logits);
  EXPECT_EQ(fixture.sampled[2].token_id, 1);
  EXPECT_EQ(fixture.sampled[2].rank, 3);  // raw: before the mask
  EXPECT_EQ(fixture.logprobs[fixture.sampled[2].logprobs_begin + 1].token_id, 3);
}

// softmax.json's finite cases through the score path; its others are bad logits.
TEST(SamplingTest, SoftmaxOracle) {
  const auto path = testing::RefPath("numeric/softmax.json");
  if (!path) GTEST_SKIP() << "no numeric/softmax.json";
  Fixture fixture;
  const nlohmann::json cases = testing::ReadJson(*path)["cases"];
  for (const auto& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    std::vector<float> logits;
    for (const auto& value : c["input"]) {
      if (value.is_number()) {
        logits.push_back(value.get<float>());
      } else {
        const std::string text = value.get<std::string>();
        logits.push_back(text == "inf" ? kInfinity : text == "-inf" ? -kInfinity : kNan);
      }
    }
    const bool bad = std::any_of(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); }) ||
                     std::all_of(logits.begin(), logits.end(), [](float x) { return x == -kInfinity; });
    const std::vector<double> probabilities = FinalProbabilities(logits, {.temperature = 1});
    EXPECT_EQ(probabilities.empty(), bad);
    if (bad) continue;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = c["softmax"][i].get<double>();
      EXPECT_NEAR(probabilities[i], expected, 1e-6 * expected + 1e-7);
    }
    const float max = ScanMax(logits).max;
    const double log_sum = c["logsumexp"].get<double>();
    EXPECT_NEAR(LogSumExp(logits, max), log_sum, 1e-6 * std::abs(log_sum) + 1e-7);
  }
}

TEST(SamplingTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {0, std::log(2.0f), -kInfinity, std::log(5.0f)};  // 1/8, 2/8, 0, 5/8
  for (bool sparse : {false, true}) {
    SamplingScratch scratch;
    ComputeDistribution(logits, {.temperature = 1, .top_k = sparse ? 3 : 0}, &scratch);
    ASSERT_EQ(scratch.distribution.is_sparse, sparse);
    EXPECT_EQ(DrawToken(scratch.distribution, 0.0f), 0);
    EXPECT_EQ(DrawToken(scratch.distribution, 0.124f), 0);
    EXPECT_EQ(DrawToken(scratch.distribution, 0.126f), 1);
    EXPECT_EQ(DrawToken(scratch.distribution, 0.374f), 1);
    EXPECT_EQ(DrawToken(scratch.distribution, 0.376f), 3);
    EXPECT_EQ(DrawToken(scratch.distribution, 0x1.fffffep-1f), 3);
    std::vector<int> counts(4, 0);
    constexpr int kDraws = 40000;
    for (int i = 0; i < kDraws; ++i) {
      ++counts[DrawToken(scratch.distribution, UniformFloat(7, 0, i, RandomPurpose::kDraw))];
    }
    EXPECT_NEAR(counts[0], kDraws / 8, 300);
    EXPECT_NEAR(counts[1], kDraws / 4, 400);
    EXPECT_EQ(counts[2], 0);
  }
}

// Every way through the selection against a full sort in double.
TEST(SamplingTest, SelectionMatchesFullSort) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int vocab = std::vector<int>{1, 3, 17, 257, 1000, 5000}[random() % 6];
    std::vector<float> logits = RandomLogits(vocab, random(), round % 3 == 0 ? 0.05f : 3.0f);
    for (float& logit : logits) logit = std::round(logit * 64) / 64;  // ties
    SampleRow row{.temperature = round % 2 == 0 ? 1.0f : 0.7f};
    if (random() % 2 == 0) row.top_k = static_cast<int32_t>(random() % 300);
    if (random() % 2 == 0) row.top_p = static_cast<float>(random() % 1000 + 1) / 1000;
    if (random() % 3 == 0) row.min_p = 0.02f;
    SCOPED_TRACE(::testing::Message() << "vocab " << vocab << " top_k " << row.top_k << " top_p " << row.top_p);

    std::vector<int> order(vocab);
    for (int i = 0; i < vocab; ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    std::vector<double> weights;
    for (int id : order)
      weights.push_back(std::exp((static_cast<double>(logits[id]) - logits[order[0]]) / row.temperature));
    size_t keep = weights.size();
    while (weights[keep - 1] < row.min_p) --keep;
    if (row.top_k > 0) keep = std::min<size_t>(keep, row.top_k);
    double total = 0, sum = 0;
    for (size_t i = 0; i < keep; ++i) total += weights[i];
    size_t cut = 0;
    while (cut < keep && sum < row.top_p * total) sum += weights[cut++];
    if (row.top_p == 1) cut = keep, sum = total;

    const std::vector<double> actual = FinalProbabilities(logits, row);
    int survivors = 0;
    for (double p : actual) survivors += p > 0 ? 1 : 0;
    // One token either way at the edge: the oracle sums in another precision.
    ASSERT_NEAR(survivors, static_cast<int>(cut), row.top_p < 1 ? 1 : 0);
    if (survivors != static_cast<int>(cut)) continue;
    for (size_t i = 0; i < cut; ++i) ASSERT_NEAR(actual[order[i]], weights[i] / sum, 2e-6);
  }
}

TEST(SamplingTest, RowsDoNotDependOnEachOtherOrOnThreads) {
  constexpr int kVocab = 777, kRows = 23;
  std::vector<float> logits = RandomLogits(kVocab * kRows, 5);
  std::vector<SampleRow> rows;
  for (int32_t r = 0; r < kRows; ++r) {
    rows.push_back({.logits_row = r,
                    .temperature = r % 3 == 0 ? 0.0f : 1.0f,
                    .top_k = r % 4 == 0 ? 20 : 0,
                    .top_p = r % 5 == 0 ? 0.8f : 1.0f,
                    .seed = 9,
                    .sequence_index = 2,
                    .output_position = static_cast<uint32_t>(r),
                    .num_logprobs = r % 2 == 0 ? 3 : SampleRow::kNoLogprobs});
  }
  Fixture together(4);
  ASSERT_TRUE(together.Sample(logits, kVocab, rows, {{.logits_row = 3, .target_id = 5, .num_logprobs = -1}}).ok());
  EXPECT_EQ(together.scored[0].logprobs_count, kVocab + 1);
  Fixture alone(1);
  for (int32_t r = 0; r < kRows; ++r) {
    ASSERT_TRUE(alone.Sample(logits, kVocab, {rows[r]}).ok());
    EXPECT_EQ(alone.sampled[0].token_id, together.sampled[r].token_id);
    ASSERT_EQ(alone.sampled[0].logprobs_count, together.sampled[r].logprobs_count);
    EXPECT_EQ(alone.sampled[0].rank, together.sampled[r].rank);
    for (int32_t i = 0; i < alone.sampled[0].logprobs_count; ++i) {
      const TokenLogprob& a = alone.logprobs[alone.sampled[0].logprobs_begin + i];
      const TokenLogprob& b = together.logprobs[together.sampled[r].logprobs_begin + i];
      EXPECT_EQ(a.token_id, b.token_id);
      EXPECT_EQ(a.logprob, b.logprob);
    }
  }
}

// B060: the best one of the best one is the best one.
TEST(SamplingTest, B060TopK1AndTinyTopPAreGreedy) {
  Fixture fixture(1);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = RandomLogits(300, seed);
    ASSERT_TRUE(fixture
                    .Sample(logits, 300,
                            {{.temperature = 0},
                             {.temperature = 1, .top_k = 1, .seed = seed},
                             {.temperature = 1.5f, .top_p = 1e-6f, .seed = seed},
                             {.temperature = 1, .min_p = 1, .seed = seed}})
                    .ok());
    for (const SampledToken& token : fixture.sampled) EXPECT_EQ(token.token_id, fixture.sampled[0].token_id);
  }
}

// B062: a result depends on the request and its seed, whatever the order of the batch.
TEST(SamplingTest, B062OrderInTheBatchChangesNothing) {
  constexpr int kVocab = 500, kRows = 8;
  Fixture fixture(2);
  const std::vector<float> logits = RandomLogits(kVocab * kRows, 42);
  std::vector<SampleRow> rows;
  for (int32_t r = 0; r < kRows; ++r) {
    rows.push_back({.logits_row = r, .temperature = 0.6f, .top_k = 40, .top_p = 0.95f, .seed = 42});
  }
  ASSERT_TRUE(fixture.Sample(logits, kVocab, rows).ok());
  std::vector<int32_t> ids;
  for (const SampledToken& token : fixture.sampled) ids.push_back(token.token_id);
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(rows.begin(), rows.end(), random);
    ASSERT_TRUE(fixture.Sample(logits, kVocab, rows).ok());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(fixture.sampled[i].token_id, ids[rows[i].logits_row]);
  }
}

// B064, B068, B069: what is off, or keeps more than there is, is the same as unset.
TEST(SamplingTest, B064B068B069NeutralValuesAreOff) {
  const std::vector<float> logits = RandomLogits(64, 8);
  const std::vector<double> unset = FinalProbabilities(logits, {.temperature = 0.8f});
  for (const int32_t top_k : {0, -1, 64, 65, 9999999}) {
    EXPECT_EQ(FinalProbabilities(logits, {.temperature = 0.8f, .top_k = top_k}), unset) << top_k;
  }
  SamplingRules neutral;
  neutral.repeat_last_n = 5;
  neutral.xtc_threshold = 0.3f;
  neutral.mirostat_eta = 0.5f;
  const std::vector<int32_t> tokens = {1, 2, 3};
  const SampleExtras extras{.rules = &neutral, .tokens = tokens};
  EXPECT_EQ(FinalProbabilities(logits, {.temperature = 0.8f, .min_p = 0, .top_p = 1, .more = &extras}), unset);
}

// B078: a token's raw log-probability is the same whatever it is drawn by.
TEST(SamplingTest, B078RawLogprobsDoNotDependOnTemperature) {
  Fixture fixture(1);
  const std::vector<float> logits = RandomLogits(100, 4);
  std::vector<SampleRow> rows;
  for (const float temperature : {0.0f, 0.5f, 1.0f, 1.5f}) {
    rows.push_back({.temperature = temperature, .top_p = 0.0001f, .num_logprobs = -1});
  }
  ASSERT_TRUE(fixture.Sample(logits, 100, rows).ok());
  for (const SampledToken& token : fixture.sampled) {
    for (int32_t i = 0; i < token.logprobs_count; ++i) {
      const TokenLogprob &first = fixture.logprobs[fixture.sampled[0].logprobs_begin + i],
                         &other = fixture.logprobs[token.logprobs_begin + i];
      EXPECT_EQ(first.token_id, other.token_id);
      EXPECT_EQ(first.logprob, other.logprob);
    }
  }
}

// B082: whatever the draw, the id is one of the vocabulary and one that may come.
TEST(SamplingTest, B082EveryDrawIsAValidToken) {
  for (uint32_t seed = 0; seed <= 200; ++seed) {
    std::vector<float> logits = RandomLogits(1000, seed, 20);
    for (size_t i = seed % 7; i < logits.size(); i += 7) logits[i] = -kInfinity;
    SamplingScratch scratch;
    for (const float top_p : {0.3f, 0.95f, 1.0f}) {
      ComputeDistribution(logits, {.temperature = 0.9f, .top_p = top_p}, &scratch);
      for (const float uniform : {0.0f, 0.25f, 0x1.fffffep-1f}) {
        const int32_t id = DrawToken(scratch.distribution, uniform);
        ASSERT_TRUE(id >= 0 && id < 1000 && logits[id] > -kInfinity);
      }
    }
  }
}

TEST(SamplingTest, RefusesParametersOutOfRange) {
  Fixture fixture;
  const std::vector<float> logits(8, 1.0f);
  const int32_t banned[] = {8};
  const uint32_t mask[] = {1, 1};
  const SampleExtras bans{.banned_ids = banned}, masked{.allowed_mask = mask};
  const SampleRow bad_rows[] = {{.logits_row = 1}, {.temperature = -1},  {.temperature = kNan}, {.min_p = 2},
                                {.top_p = 0},      {.num_logprobs = -3}, {.more = &bans},       {.more = &masked}};
  for (const SampleRow& row : bad_rows) {
    EXPECT_EQ(fixture.Sample(logits, 8, {row}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(fixture.Sample(logits, 8, {}, {{.logits_row = 0, .target_id = 8}}).message(),
            "SampleTokens: target_id is 8, expected 0..7");
}

TEST(VocabScanTest, ArgmaxIsTheLowestBest) {
  for (int size : {1, 2, 5, 1023, 1024, 1025, 4100}) {
    std::vector<float> logits(size, -2.0f);
    EXPECT_EQ(ScanMax(logits).argmax, 0);
    logits[size - 1] = 3;
    EXPECT_EQ(ScanMax(logits).argmax, size - 1);
    logits[size / 2] = 3;
    EXPECT_EQ(ScanMax(logits).argmax, size / 2);
    EXPECT_EQ(ScanMax(logits).max, 3);
    logits[size - 1] = kNan;
    EXPECT_TRUE(ScanMax(logits).bad);
  }
}

TEST(VocabScanTest, ExpIsAccurate) {
  for (float x = 0; x > -87; x -= 0.00173f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(ExpNonPositive(x), exact, 2.4e-7 * exact) << x;
  }
  EXPECT_EQ(ExpNonPositive(0), 1);
  EXPECT_EQ(ExpNonPositive(-100), 0);
  EXPECT_EQ(ExpNonPositive(-kInfinity), 0);
}

// Known answers of Random123 1.14 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformFloatUsesEveryKey) {
  const float base = UniformFloat(1, 2, 3, RandomPurpose::kDraw);
  EXPECT_NE(base, UniformFloat(2, 2, 3, RandomPurpose::kDraw));
  EXPECT_NE(base, UniformFloat(uint64_t{1} << 32 | 1, 2, 3, RandomPurpose::kDraw));
  EXPECT_NE(base, UniformFloat(1, 3, 3, RandomPurpose::kDraw));
  EXPECT_NE(base, UniformFloat(1, 2, 4, RandomPurpose::kDraw));
  EXPECT_GE(base, 0);
  EXPECT_LT(base, 1);
}

}  // namespace
}  // namespace quire
