#include "scheduler/beam_search.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/naive_beam_search.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// A language model of a table: log-probabilities from the last token, in quarters, so that equal sums are frequent.
class TableModel {
 public:
  TableModel(int32_t vocab_size, uint32_t seed, bool some_impossible) : vocab_size_(vocab_size) {
    std::mt19937 random(seed);
    for (int32_t i = 0; i < vocab_size * vocab_size; ++i) {
      logprobs_.push_back(-0.25f * static_cast<float>(random() % 12));
      if (some_impossible && random() % 5 == 0) logprobs_.back() = kImpossible;
    }
  }

  // Of all ids, best first.
  std::vector<TokenLogprob> After(int32_t token) const {
    std::vector<TokenLogprob> all;
    for (int32_t id = 0; id < vocab_size_; ++id) all.push_back({id, logprobs_[token * vocab_size_ + id]});
    std::stable_sort(all.begin(), all.end(),
                     [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; });
    return all;
  }

 private:
  const int32_t vocab_size_;
  std::vector<float> logprobs_;
};

// Runs a search to its end, giving it no more candidates than it says it needs.
BeamSearch RunSearch(const BeamSearchOptions& options, const TableModel& model, int32_t prompt_token) {
  BeamSearch search(options);
  const auto candidates = static_cast<size_t>(BeamSearch::NumCandidates(options.width, options.ending_ids));
  std::vector<int32_t> last = {prompt_token};
  for (int32_t length = 1; !search.done(); ++length) {
    EXPECT_LE(length, options.max_output);
    for (int32_t b = search.num_beams() - 1; b >= 0; --b) {
      EXPECT_FALSE(search.ready());
      std::vector<TokenLogprob> best = model.After(last[b]);
      best.resize(std::min(best.size(), candidates));
      search.Offer(b, best);
    }
    EXPECT_TRUE(search.ready());
    search.Advance();
    last.clear();
    for (const BeamSearch::Beam& beam : search.beams()) last.push_back(beam.token_id);
  }
  return search;
}

TEST(BeamSearchTest, AgreesWithTheNaiveOneOnRandomModels) {
  int64_t ended = 0, full = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto vocab_size = static_cast<int32_t>(2 + random() % 12);
    const TableModel model(vocab_size, random(), random() % 3 == 0);
    SamplingParams params;
    params.beam_width = params.n = static_cast<int32_t>(1 + random() % 8);
    params.length_penalty = std::vector<float>{-1, 0, 0.5, 1, 2}[random() % 5];
    params.early_stopping = static_cast<EarlyStopping>(random() % 3);
    params.max_tokens = static_cast<int32_t>(1 + random() % 12);
    params.min_tokens = static_cast<int32_t>(random() % 3) % (params.max_tokens + 1);
    std::vector<int32_t> ending;
    for (uint32_t i = random() % 4; i > 0; --i) ending.push_back(static_cast<int32_t>(random() % vocab_size));

    const BeamSearch search = RunSearch({.width = params.beam_width,
                                         .max_output = params.max_tokens,
                                         .min_output = params.min_tokens,
                                         .length_penalty = params.length_penalty,
                                         .early_stopping = params.early_stopping,
                                         .ending_ids = ending},
                                        model, 0);
    const std::vector<BeamSearch::Hypothesis> best = search.Best(params.n);
    const std::vector<NaiveHypothesis> expected =
        NaiveBeamSearch({0}, params, params.max_tokens, ending,
                        [&](absl::Span<const int32_t> tokens) { return model.After(tokens.back()); });
    ASSERT_EQ(best.size(), expected.size());
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].score, expected[i].score);
      std::vector<int32_t> ids;
      for (const BeamSearch::Token& token : best[i].tokens) ids.push_back(token.token_id);
      ASSERT_EQ(ids, expected[i].output);
      ended += best[i].ended;
      full += !best[i].ended;
    }
  }
  EXPECT_GT(ended, 4000);
  EXPECT_GT(full, 4000);
}

// By hand. Ids: 0 ends, 1 and 2 go on. After the prompt (token 3): 1 with -0.5, 2 with -1, 0 with -1.5; after 1: 0 with
// -0.25, 1 with -3; after 2: 2 with -0.125, 0 with -4.
BeamSearch StartSmall(EarlyStopping early_stopping, float length_penalty) {
  BeamSearch search({.width = 2,
                     .max_output = 4,
                     .length_penalty = length_penalty,
                     .early_stopping = early_stopping,
                     .ending_ids = {0}});
  search.Offer(0, {{1, -0.5f}, {2, -1}, {0, -1.5f}});
  search.Advance();
  return search;
}

void AdvanceSmall(BeamSearch& search) {
  for (int32_t b = 0; b < search.num_beams(); ++b) {
    if (search.beams()[b].token_id == 1) {
      search.Offer(b, {{0, -0.25f}, {1, -3}, {2, -5}});
    } else {
      search.Offer(b, {{2, -0.125f}, {0, -4}, {1, -6}});
    }
  }
  search.Advance();
}

TEST(SmallSearchTest, KeepsTheBestThatGoOnAndWhatEndsAmongTheBest) {
  BeamSearch search = StartSmall(EarlyStopping::kNo, 1);
  ASSERT_EQ(search.num_beams(), 2);  // the ending id is third: no hypothesis
  EXPECT_EQ(search.beams()[0].token_id, 1);
  EXPECT_EQ(search.beams()[1].token_id, 2);
  AdvanceSmall(search);  // [1 0] -0.75 ends, [2 2] -1.125 and [1 1] -3.5 go on
  ASSERT_FALSE(search.done());
  ASSERT_EQ(search.num_beams(), 2);
  EXPECT_EQ(search.beams()[0].parent, 1);
  EXPECT_EQ(search.beams()[0].token_id, 2);
  EXPECT_EQ(search.beams()[1].parent, 0);
  EXPECT_EQ(search.beams()[1].token_id, 1);
  AdvanceSmall(search);         // [2 2 2] -1.25 goes on, [1 1 0] -3.75 ends: two hypotheses, -0.375 and -1.25
  ASSERT_FALSE(search.done());  // -1.25 / 3 is better than -1.25
  AdvanceSmall(search);         // the last position: [2 2 2 2] -1.375 / 4
  ASSERT_TRUE(search.done());
  const auto best = search.Best(2);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].score, -1.375 / 4);
  EXPECT_FALSE(best[0].ended);
  EXPECT_EQ(best[1].score, -0.375);
  EXPECT_TRUE(best[1].ended);
  ASSERT_EQ(best[1].tokens.size(), 2u);
  EXPECT_EQ(best[1].tokens[0].rank, 1);
  EXPECT_EQ(best[1].tokens[1].logprob, -0.25f);
}

TEST(SmallSearchTest, EarlyStoppingEndsWithEnoughHypotheses) {
  BeamSearch search = StartSmall(EarlyStopping::kYes, 1);
  AdvanceSmall(search);
  AdvanceSmall(search);
  ASSERT_TRUE(search.done());
  const auto best = search.Best(2);
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].score, -0.375);
  EXPECT_EQ(best[1].score, -1.25);
  EXPECT_EQ(search.Best(1).size(), 1u);
}

TEST(SmallSearchTest, ALengthPenaltyOfZeroMakesLongOnesWorse) {
  BeamSearch search = StartSmall(EarlyStopping::kNo, 0);
  AdvanceSmall(search);
  AdvanceSmall(search);  // hypotheses -0.75 and -3.75; [2 2 2] has -1.25
  ASSERT_FALSE(search.done());
  AdvanceSmall(search);
  EXPECT_EQ(search.Best(2)[0].score, -0.75);
  EXPECT_EQ(search.Best(2)[1].score, -1.375);
}

// With what a hypothesis is scored by at this length the best beam is no better; at full length it would be.
TEST(BeamSearchStopTest, NeverLooksAtTheLengthThatABeamMayReach) {
  for (const EarlyStopping stopping : {EarlyStopping::kNo, EarlyStopping::kNever}) {
    BeamSearch search({.width = 1, .max_output = 10, .early_stopping = stopping, .ending_ids = {0}});
    search.Offer(0, {{0, -1}, {1, -2}});
    search.Advance();
    EXPECT_EQ(search.done(), stopping == EarlyStopping::kNo);
  }
}

TEST(BeamSearchTest, KeepsTheBestIdsOfEachPosition) {
  BeamSearch search({.width = 2, .max_output = 2, .ending_ids = {}, .num_logprobs = 1});
  search.Offer(0, {{7, -1}, {4, -2}});
  search.Advance();
  search.Offer(0, {{5, -3}, {6, -4}});
  search.Offer(1, {{8, -0.5f}, {9, -9}});
  search.Advance();
  const auto best = search.Best(2);
  ASSERT_EQ(best.size(), 2u);
  ASSERT_EQ(best[0].tokens.size(), 2u);  // 4 8
  EXPECT_EQ(best[0].tokens[0].token_id, 4);
  EXPECT_EQ(best[0].tokens[0].rank, 2);
  ASSERT_EQ(best[0].tokens[0].best.size(), 1u);
  EXPECT_EQ(best[0].tokens[0].best[0].token_id, 7);
  EXPECT_EQ(best[0].tokens[1].best[0].token_id, 8);
  EXPECT_EQ(best[1].tokens[1].best[0].token_id, 5);
}

}  // namespace
}  // namespace quire
