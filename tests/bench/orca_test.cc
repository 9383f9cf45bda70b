#include <vector>

#include "gtest/gtest.h"
#include "tests/bench/orca_simulation.h"
#include "tests/bench/orca_table.h"

namespace quire {
namespace {

std::vector<cli::BenchRequest> SameRequests(int count, int prompt_len, int output_len) {
  std::vector<cli::BenchRequest> trace(count);
  for (int i = 0; i < count; ++i) {
    trace[i].prompt.assign(prompt_len, static_cast<uint32_t>(i));
    trace[i].output_len = output_len;
  }
  return trace;
}

// Requests of one length, so that every figure follows by hand.
TEST(OrcaTest, ReservesWhatEachPolicySays) {
  const auto trace = SameRequests(1'000, 24, 33);
  const OrcaOptions options = {.num_slots = 512, .max_len = 128, .block_size = 16};
  const OrcaResult max = SimulateReservation(Reservation::kMax, trace, options);
  EXPECT_DOUBLE_EQ(max.running, 4);
  EXPECT_DOUBLE_EQ(max.unused, 0);
  EXPECT_DOUBLE_EQ(max.length, 40);  // 24 .. 56
  EXPECT_DOUBLE_EQ(max.waste(), 1 - 40 / 128.);
  EXPECT_DOUBLE_EQ(max.never, (128 - 56) / 128.);
  EXPECT_DOUBLE_EQ(max.future, (56 - 40) / 128.);
  const OrcaResult power = SimulateReservation(Reservation::kPowerOfTwo, trace, options);  // 24 + 64, rounded up
  EXPECT_DOUBLE_EQ(power.running, 4);
  const OrcaResult oracle = SimulateReservation(Reservation::kOracle, trace, options);  // 57, rounded up
  EXPECT_DOUBLE_EQ(oracle.running, 8);
  EXPECT_DOUBLE_EQ(oracle.waste(), 1 - 40 / 64.);
}

TEST(OrcaTest, SharesAddUpAndPagesFillThePool) {
  const OrcaTable table = MakeOrcaTable("sharegpt-like", 400);
  for (const OrcaResult& result : {table.max, table.power_of_two, table.oracle, table.paged}) {
    EXPECT_GT(result.steps, 1'000) << result.policy;
    EXPECT_NEAR(result.tokens + result.future + result.never + result.unused, 1, 1e-9) << result.policy;
    EXPECT_GE(result.unused, 0) << result.policy;
    EXPECT_GE(result.waste(), 0) << result.policy;
  }
  EXPECT_GE(table.paged.use_at_first_preemption, 0.96);
  EXPECT_GT(table.paged.preemptions, 0);
}

TEST(OrcaTest, GoalsHoldOnShortTraces) {
  for (OrcaGoals goals : kOrcaGoals) {
    const OrcaTable table = MakeOrcaTable(goals.dataset, goals.num_requests / 4);
    for (const OrcaFigure& figure : CheckGoals(goals, table)) {
      EXPECT_TRUE(figure.met) << goals.dataset << ": " << figure.text << "\n" << table.Text();
    }
  }
}

TEST(OrcaTest, GoalsCanBeMissed) {
  const OrcaTable table = MakeOrcaTable("alpaca-like", 2'000);
  for (const OrcaFigure& figure : CheckGoals({"alpaca-like", 2'000, 0.0, 1'000, 1'000}, table)) {
    EXPECT_FALSE(figure.met) << figure.text;
  }
}

}  // namespace
}  // namespace quire
