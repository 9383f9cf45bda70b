// Structured output in the scheduler: forced tokens, ends, failures. What is random about it is in the property test.

#include "scheduler/token_constraints.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/fake_constraint.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

constexpr int32_t kEnd = 7;  // HarnessOptions::eos_ids

// One of the given texts, which an end id follows; none behind the last where `open`.
class ListConstraint final : public TokenConstraint {
 public:
  ListConstraint(std::vector<std::vector<int32_t>> texts, bool ends_with_id) : texts_(std::move(texts)) {
    for (std::vector<int32_t>& text : texts_) {
      if (ends_with_id) text.push_back(kEnd);
    }
  }

  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<ListConstraint>(*this); }
  absl::Status Accept(int32_t token_id) override {
    std::erase_if(texts_, [&](const auto& text) { return text.size() <= at_ || text[at_] != token_id; });
    ++at_;
    return texts_.empty() ? absl::InvalidArgumentError("not allowed") : absl::OkStatus();
  }
  int32_t vocab_size() const override { return FakeRunner::kVocabSize; }
  int32_t num_allowed() const override { return static_cast<int32_t>(Allowed().size()); }
  int32_t only_token() const override { return Allowed().at(0); }
  void FillMask(absl::Span<uint32_t> words) const override {
    std::fill(words.begin(), words.end(), 0);
    for (const int32_t id : Allowed()) words[id / 32] |= 1u << id % 32;
  }

 private:
  std::vector<int32_t> Allowed() const {
    std::vector<int32_t> ids;
    for (const std::vector<int32_t>& text : texts_) {
      if (at_ < text.size() && std::find(ids.begin(), ids.end(), text[at_]) == ids.end()) ids.push_back(text[at_]);
    }
    return ids;
  }

  std::vector<std::vector<int32_t>> texts_;
  size_t at_ = 0;
};

std::shared_ptr<const TokenConstraint> OneOf(std::vector<std::vector<int32_t>> texts, bool ends_with_id = true) {
  return std::make_shared<ListConstraint>(std::move(texts), ends_with_id);
}

SamplingParams Params(int32_t max_tokens, int32_t n = 1) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  params.n = n;
  return params;
}

int64_t StepsOf(SchedulerHarness& harness) { return harness.scheduler.stats().steps; }

TEST(TokenConstraintsTest, ForcedTokensAreAppendedAtOnceAndComputedAsOneChunk) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2, 3, 4, 5, 6, 10, 20}, {1, 2, 3, 4, 5, 6, 11, 21}});
  const uint64_t handle = harness.Add(Ids(5), Params(30));
  ASSERT_TRUE(harness.Step());
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(harness.Schedule());
  ASSERT_EQ(harness.plan.sequences.size(), 1u);
  EXPECT_EQ(harness.plan.sequences[0].num_tokens, 6);
  harness.Commit();  // samples 10 or 11; the rest, end id included, needs no row
  EXPECT_FALSE(harness.scheduler.HasWork());
  EXPECT_EQ(harness.seen(handle).ids[0].size(), 9u);
  EXPECT_EQ(harness.seen(handle).last_event.finish_reason, FinishReason::kStop);
  EXPECT_EQ(harness.seen(handle).last_event.stop_token_id, kEnd);
  EXPECT_TRUE(harness.seen(handle).last_event.stopped_by_eos);
  harness.ExpectCorrect(handle);
  harness.ExpectIdle();
}

TEST(TokenConstraintsTest, TokensAreTheSameWithAndWithoutAppending) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<int64_t> steps;
    for (const bool append : {true, false}) {
      SchedulerHarness harness({.append_forced_tokens = append});
      harness.constraint = std::make_shared<testing::FakeConstraint>(FakeRunner::kVocabSize, kEnd, seed);
      SamplingParams params = Params(40, 3);
      params.seed = seed;
      const uint64_t handle = harness.Add(Ids(9), params);
      harness.RunAll(200);
      harness.ExpectCorrect(handle);
      ids.insert(ids.end(), harness.seen(handle).ids.begin(), harness.seen(handle).ids.end());
      steps.push_back(StepsOf(harness));
    }
    EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 3), std::vector(ids.begin() + 3, ids.end()));
    EXPECT_LE(steps[0], steps[1]);
  }
}

TEST(TokenConstraintsTest, NothingIsSkippedWhereLogprobsAreWanted) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2, 3}});
  SamplingParams params = Params(30);
  params.logprobs = 0;
  const uint64_t handle = harness.Add(Ids(5), params);  // the harness wants one for each token
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, 3, kEnd}));
  EXPECT_EQ(StepsOf(harness), 4);
}

TEST(TokenConstraintsTest, AppendingStopsAtTheLengthLimit) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2, 3, 4, 5, 6}});
  const uint64_t handle = harness.Add(Ids(5), Params(4));
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(harness.seen(handle).last_event.finish_reason, FinishReason::kLength);
}

TEST(TokenConstraintsTest, AStopIdWithinForcedTokensEndsThere) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2, 3, 4, 5, 6}});
  SamplingParams params = Params(30);
  params.stop_token_ids = {3};
  const uint64_t handle = harness.Add(Ids(5), params);
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(harness.seen(handle).last_event.stop_token_id, 3);
}

// min_tokens bans the end id while something else may follow, and no longer.
TEST(TokenConstraintsTest, ATextThatCanOnlyEndEndsWhateverMinTokensSays) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1}, {1, 2}, {1, 2, 3}});
  SamplingParams params = Params(30);
  params.min_tokens = 20;
  const uint64_t handle = harness.Add(Ids(5), params);
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, 3, kEnd}));
  EXPECT_EQ(harness.seen(handle).last_event.finish_reason, FinishReason::kStop);
}

TEST(TokenConstraintsTest, ACompleteTextEndsWithIgnoreEosToo) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2}});
  SamplingParams params = Params(30);
  params.ignore_eos = true;
  const uint64_t handle = harness.Add(Ids(5), params);
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0], (std::vector<int32_t>{1, 2, kEnd}));
  EXPECT_EQ(harness.seen(handle).last_event.stop_token_id, kEnd);
  EXPECT_FALSE(harness.seen(handle).last_event.stopped_by_eos) << "which does not end such a request";
}

TEST(TokenConstraintsTest, ACompleteTextEndsWithoutAnEndId) {
  SchedulerHarness harness({});
  harness.constraint = OneOf({{1, 2}, {3, 4}}, /*ends_with_id=*/false);
  const uint64_t handle = harness.Add(Ids(5), Params(30));
  harness.RunAll(20);
  EXPECT_EQ(harness.seen(handle).ids[0].size(), 2u);
  EXPECT_EQ(harness.seen(handle).last_event.finish_reason, FinishReason::kStop);
  EXPECT_EQ(harness.seen(handle).last_event.stop_token_id, -1);
}

TEST(TokenConstraintsTest, AFailingConstraintEndsItsRequestAndNoOther) {
  SchedulerHarness harness({});
  auto failing = std::make_shared<testing::FakeConstraint>(FakeRunner::kVocabSize, kEnd, 4);
  failing->fails_at = 2;
  harness.constraint = failing;
  const uint64_t bad = harness.Add(Ids(5), Params(30, 2));
  harness.constraint = nullptr;
  const uint64_t good = harness.Add(Ids(9, 2), Tokens(10));
  harness.RunAll(50);
  EXPECT_TRUE(harness.seen(bad).finished);
  EXPECT_EQ(harness.seen(bad).last_event.finish_reason, FinishReason::kError);
  EXPECT_EQ(harness.seen(bad).last_event.error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(harness.seen(bad).last_event.error.message(), "structured output: too expensive");
  harness.ExpectCorrect(good);
  harness.ExpectIdle();
}

// With two plans in flight its next token is not foreseen: what it may be is not known yet.
TEST(TokenConstraintsTest, IsNotPlannedWhileItsLastTokenIsInFlight) {
  SchedulerHarness harness({.max_plans_in_flight = 2});
  harness.constraint = OneOf({{1, 2}, {2, 1}, {3, 3}});
  const uint64_t handle = harness.Add(Ids(5), Params(30));
  harness.constraint = nullptr;
  const uint64_t free = harness.Add(Ids(5, 2), Tokens(6));
  ASSERT_TRUE(harness.Schedule());
  EXPECT_EQ(harness.plan.sequences.size(), 2u);
  ASSERT_TRUE(harness.Schedule());
  EXPECT_EQ(harness.plan.sequences.size(), 1u);
  harness.RunAll(50);
  harness.ExpectCorrect(handle);
  harness.ExpectCorrect(free);
  EXPECT_EQ(harness.scheduler.stats().surplus_tokens, 0);
}

TEST(TokenConstraintsTest, BeamSearchIsRefused) {
  SchedulerHarness harness({});
  EngineRequest request = MakeEngineRequest(Ids(5), Params(30), harness.options.block_size, harness.context);
  request.handle = 1;
  request.params.beam_width = 2;
  request.params.temperature = 0;
  request.is_constrained = true;
  EXPECT_EQ(harness.scheduler.CheckRequest(request),
            absl::InvalidArgumentError("structured output does not go with beam search"));
}

}  // namespace
}  // namespace quire
