#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/device.h"

namespace quire::simt {

// A schedule of the emulator. A GPU has one of its own: there the four are one run.
struct Schedule {
  const char* name;
  Order order;
  uint64_t seed;
};

inline std::vector<Schedule> AllSchedules() {
  if (BuildName() == "gpu") return {{"gpu", Order::kForward, 1}};
  return {{"forward", Order::kForward, 1},
          {"reverse", Order::kReverse, 1},
          {"random 1", Order::kRandom, 1},
          {"random 2", Order::kRandom, 2}};
}

inline void SetSchedule(const Schedule& schedule) {
  options().lanes = options().blocks = schedule.order;
  options().seed = schedule.seed;
}

// Base of kernel tests: runs on any device, and fails where a kernel broke a rule.
class SimtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetSchedule({"forward", Order::kForward, 1});
    stats() = {};
  }
  void TearDown() override {
    for (const Violation& violation : TakeViolations())
      ADD_FAILURE() << "[" << violation.kind << "] " << violation.text;
  }

  // Runs `body` under every schedule.
  template <typename Body>
  void ForEachSchedule(Body body) {
    for (const Schedule& schedule : AllSchedules()) {
      SCOPED_TRACE(schedule.name);
      SetSchedule(schedule);
      body();
      if (HasFatalFailure()) return;
    }
  }
};

}  // namespace quire::simt
