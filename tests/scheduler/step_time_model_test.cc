#include "scheduler/step_time_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

// Steps as a server has them: decodes of changing number, chunks in some.
StepLoad RandomLoad(std::mt19937& random) {
  StepLoad load;
  const uint32_t rows = random() % 64;
  for (uint32_t i = 0; i < rows; ++i) load.Add(random() % 4000, 1, true);
  if (random() % 3 == 0) load.Add(random() % 4000, 1 + random() % 512, false);
  return load;
}

double RelativeError(double got, double want) { return std::abs(got / want - 1); }

TEST(StepTimeModelTest, LoadsCountRowsAndThePairsTheyAttendTo) {
  StepLoad load;
  load.Add(10, 3, false);
  EXPECT_EQ(load.prefill_tokens, 3);
  EXPECT_EQ(load.prefill_pairs, 11 + 12 + 13);
  load.Add(7, 1, true);
  EXPECT_EQ(load.decode_rows, 1);
  EXPECT_EQ(load.decode_kv, 8);
}

TEST(StepTimeModelTest, FindsTheCostOfEachKindOfWorkInNoise) {
  const StepCost cost;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1, 0.05);
  StepTimeModel model;
  for (int i = 0; i < 600; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Learn(load, cost.Of(load) * noise(random));
  }
  for (int i = 0; i < 100; ++i) {
    const StepLoad load = RandomLoad(random);
    EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.05);
  }
  // The margin covers about 99 of 100.
  int above = 0;
  for (int i = 0; i < 2000; ++i) {
    const StepLoad load = RandomLoad(random);
    above += cost.Of(load) * noise(random) > model.PredictHigh(load);
  }
  EXPECT_LT(above, 40);
  EXPECT_LT(model.margin(), 1.25);
}

TEST(StepTimeModelTest, FollowsAMachineThatBecomesSlower) {
  StepCost cost;
  std::mt19937 random(4);
  StepTimeModel model;
  const auto learn = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const StepLoad load = RandomLoad(random);
      model.Learn(load, cost.Of(load));
    }
  };
  learn(500);
  cost.step *= 2, cost.prefill_token *= 2, cost.prefill_pair *= 2, cost.decode_row *= 2, cost.decode_kv *= 2;
  learn(600);
  const StepLoad load = RandomLoad(random);
  EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.1);
}

TEST(StepTimeModelTest, AnOddStepMovesItLittle) {
  const StepCost cost;
  std::mt19937 random(5);
  StepTimeModel model;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Learn(load, cost.Of(load));
  }
  const StepLoad load = RandomLoad(random);
  model.Learn(load, 1000 * cost.Of(load));
  EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.1);
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    model.Learn(load, bad);
  }
  EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.1);
}

TEST(StepTimeModelTest, StaysFiniteAndUsefulWhenAllStepsAreAlike) {
  const StepCost cost;
  StepTimeModel model;
  StepLoad load;
  for (int i = 0; i < 8; ++i) load.Add(100, 1, true);
  for (int i = 0; i < 200'000; ++i) model.Learn(load, cost.Of(load));
  EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.02);
  StepLoad other = load;
  other.Add(0, 512, false);
  for (int i = 0; i < 20; ++i) model.Learn(other, cost.Of(other));
  EXPECT_LT(RelativeError(model.Predict(other), cost.Of(other)), 0.1);
  EXPECT_LT(RelativeError(model.Predict(load), cost.Of(load)), 0.05);
}

TEST(StepTimeModelTest, FitIsTheLargestChunkWithinTheTime) {
  const StepCost cost;
  std::mt19937 random(6);
  StepTimeModel model;
  EXPECT_EQ(model.Fit(1, 0, 100), 100) << "knows nothing yet";
  for (int i = 0; i < 500; ++i) {
    const StepLoad load = RandomLoad(random);
    model.Learn(load, cost.Of(load));
  }
  for (const double seconds : {1e-5, 1e-4, 1e-3, 1e-2, 0.1}) {
    for (const int64_t start : {0, 100, 4000}) {
      const int32_t fit = model.Fit(seconds, start, 1 << 20);
      EXPECT_LE(fit == 0 ? 0 : model.ChunkSeconds(start, fit, false), seconds * (1 + 1e-9));
      EXPECT_GT(model.ChunkSeconds(start, fit + 1, false), seconds * (1 - 1e-9));
    }
  }
  EXPECT_EQ(model.Fit(0, 0, 10), 0);
  EXPECT_EQ(model.Fit(-1, 0, 10), 0);
}

// Sixteen sequences decode while long prompts keep coming: the steps stay below the target, the prompts advance.
TEST(ItlTargetTest, NinetyNineOfAHundredStepsStayBelowTheTarget) {
  for (const double noise : {0.0, 0.04}) {
    for (const double target : {10e-3, 15e-3, 30e-3}) {
      SCOPED_TRACE(testing::Message() << "target " << target << " noise " << noise);
      SimLoop loop({.scheduler = {.max_num_seqs = 32, .itl_target = absl::Seconds(target)}, .noise = noise});
      for (int i = 0; i < 16; ++i) loop.Add({.prompt_len = 50, .max_tokens = 6000});
      std::vector<double> seconds;
      int64_t prefilled = 0;
      std::mt19937 random(7);
      for (int step = 0; step < 3000; ++step) {
        if (loop.scheduler.stats().requests_waiting == 0) {
          loop.Add({.prompt_len = static_cast<int32_t>(2000 + random() % 4000), .max_tokens = 4});
        }
        seconds.push_back(loop.Step());
        prefilled += loop.plan.load.prefill_tokens;
      }
      std::sort(seconds.begin(), seconds.end());
      EXPECT_LT(seconds[seconds.size() * 99 / 100], target);
      // The time is used: half of what an oracle could do for the prompts at that target.
      const double spare = target - StepCost().Of({.decode_rows = 16, .decode_kv = 16 * 1500});
      EXPECT_GT(prefilled, 0.35 * 3000 * spare / (StepCost().prefill_token + 2000 * StepCost().prefill_pair));
    }
  }
}

// The decodes alone take longer than the target: prompts still advance by a little each step, and none starves.
TEST(ItlTargetTest, ATargetThatCannotBeMetStopsNobody) {
  SimLoop loop({.scheduler = {.max_num_seqs = 32, .itl_target = absl::Milliseconds(1)}});
  for (int i = 0; i < 8; ++i) loop.Add({.prompt_len = 100, .max_tokens = 50});
  loop.RunAll(2000);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
}

// Once the model knows that no step fits, a request that comes to an empty engine still gets its first tokens.
TEST(ItlTargetTest, ATargetThatCannotBeMetServesWhoeverComesToAnEmptyEngine) {
  for (const bool offline : {false, true}) {
    SimLoop loop({.scheduler = {.itl_target = absl::Milliseconds(1)}});
    for (int i = 0; i < 20; ++i) {
      loop.Add({.prompt_len = 100, .max_tokens = 5, .offline = offline});
      loop.RunAll(200);
    }
    for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete()) << seen.last_event.error;
  }
}

// What an urgent request stops gives its tokens and time back: the newcomer gets some, and nobody fails for an empty
// plan.
TEST(ItlTargetTest, ATargetThatCannotBeMetLetsUrgentWorkInterrupt) {
  for (const bool offline : {false, true}) {
    SimLoop loop({.scheduler = {.max_num_seqs = 1, .itl_target = absl::Milliseconds(1)}});
    for (int i = 0; i < 10; ++i) {
      loop.Add({.prompt_len = 100, .max_tokens = 30, .priority = 5, .offline = offline});
      for (int step = 0; step < 12; ++step) loop.Step();
      loop.Add({.prompt_len = 100, .max_tokens = 5, .priority = -5});
      loop.RunAll(500);
    }
    for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete()) << seen.last_event.error;
  }
}

TEST(ItlTargetTest, WithoutATargetAPromptTakesTheWholeBudget) {
  SimLoop loop({.scheduler = {.max_num_batched_tokens = 512}});
  loop.Add({.prompt_len = 2000});
  loop.Step();
  EXPECT_EQ(loop.plan.num_tokens, 512);
}

}  // namespace
}  // namespace quire
