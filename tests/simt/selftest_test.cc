#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/simt/selftest_kernels.h"
#include "tests/simt/simt_test.h"

namespace quire::simt {
namespace {

class SelfTestTest : public SimtTest {
 protected:
  // What `test` leaves in `out` and `flag`, both zeros before.
  void Run(SelfTest test) {
    DeviceArray<int> out(std::vector<int>(512, 0));
    DeviceArray<unsigned> flag(std::vector<unsigned>(4, 0));
    error_ = LaunchSelfTest(test, out.data(), flag.data());
    out_ = out.Download();
    flag_ = flag.Download();
  }
  // Runs what is allowed, under every schedule.
  void Expect(SelfTest test, const std::function<void()>& check) {
    ForEachSchedule([&] {
      Run(test);
      EXPECT_EQ(error_, cudaSuccess);
      check();
    });
  }

  cudaError_t error_ = cudaSuccess;
  std::vector<int> out_;
  std::vector<unsigned> flag_;
};

TEST_F(SelfTestTest, ExitedLanesAreNotWaitedFor) {
  Expect(SelfTest::kEarlyExit, [&] { EXPECT_EQ(out_[39], 39); });
}

TEST_F(SelfTestTest, SyncWarpOrdersMemory) {
  Expect(SelfTest::kSyncWarp, [&] { EXPECT_EQ(out_[6], 7); });
}

TEST_F(SelfTestTest, NamedBarrierOrdersMemory) {
  Expect(SelfTest::kNamedBarrier, [&] { EXPECT_EQ(out_[31], 93); });
}

TEST_F(SelfTestTest, HalvesOfAWarpShuffleApart) {
  Expect(SelfTest::kHalfMasks, [&] {
    EXPECT_EQ(out_[0], 1);
    EXPECT_EQ(out_[16], 19);
    EXPECT_EQ(out_[31], 18);
  });
}

TEST_F(SelfTestTest, VotesAndReductions) {
  Expect(SelfTest::kVotes, [&] { EXPECT_EQ(out_[7], 496 + 1000 + 10000); });
}

TEST_F(SelfTestTest, Atomics) {
  Expect(SelfTest::kAtomics, [&] {
    EXPECT_EQ(flag_, std::vector<unsigned>(4, 32));
    EXPECT_EQ(out_[0], 63);
    EXPECT_EQ(out_[1], 0x42800000);  // 64.0f
  });
}

TEST_F(SelfTestTest, ALaneWaitsForAnother) {
  Expect(SelfTest::kSpinOnFlag, [&] { EXPECT_EQ(out_[0], 9); });
}

TEST_F(SelfTestTest, FencesOrderLanesOfABlock) {
  Expect(SelfTest::kFencedInBlock, [&] { EXPECT_EQ(out_[6], 8); });
}

TEST_F(SelfTestTest, FencesOrderBlocks) {
  Expect(SelfTest::kFencedAcrossBlocks, [&] { EXPECT_EQ(out_[128 + 63], 3); });
}

TEST_F(SelfTestTest, BarriersReduce) {
  if (BuildName() == "ptx") GTEST_SKIP() << "the interpreter knows no bar.red";
  Expect(SelfTest::kBlockReduce, [&] { EXPECT_EQ(out_[5], 22 + 100 + 1000); });
}

// What must be refused, as which kind, and by which builds.
struct Fault {
  const char* name;
  SelfTest test;
  const char* kind;
  std::vector<std::string> builds;
};

std::vector<Fault> Faults() {
  const std::vector<std::string> all = {"plain", "asan", "race", "ptx"}, sources = {"plain", "asan", "race"};
  return {
      {"ShuffleFromExited", SelfTest::kShuffleFromExited, "shuffle-from-absent-lane", all},
      {"Deadlock", SelfTest::kDeadlock, "deadlock", all},
      {"DivergentBarrier", SelfTest::kDivergentBarrier, "divergent-barrier", sources},
      {"OverlappingMasks", SelfTest::kOverlappingMasks, "mask-mismatch", all},
      {"LaneOutsideMask", SelfTest::kLaneOutsideMask, "lane-not-in-mask", all},
      {"MissingSyncWarp", SelfTest::kMissingSyncWarp, "race", {"race"}},
      {"ShuffleIsNoFence", SelfTest::kShuffleIsNoFence, "race", {"race"}},
      {"MissingSyncThreads", SelfTest::kMissingSyncThreads, "race", {"race"}},
      {"RaceAcrossBlocks", SelfTest::kRaceAcrossBlocks, "race", {"race"}},
      {"MissingFence", SelfTest::kMissingFence, "race", {"race"}},
      {"UninitialisedShared", SelfTest::kUninitialisedShared, "uninitialised-shared", {"race"}},
      {"CopyNotWaited", SelfTest::kCopyNotWaited, "cp.async-not-waited", sources},
      {"CopyMisaligned", SelfTest::kCopyMisaligned, "cp.async-misaligned", all},
      {"LdMatrixMisaligned", SelfTest::kLdMatrixMisaligned, "ldmatrix-misaligned", sources},
      {"MmaOfPartOfAWarp", SelfTest::kMmaOfPartOfAWarp, "partial-warp", all},
      {"WriteBehindArray", SelfTest::kWriteBehindArray, "guard", {"plain", "race", "ptx"}},
      {"PtxSharedOverrun", SelfTest::kSharedOverrun, "ptx-shared-out-of-bounds", {}},
      {"PtxMisalignedVector", SelfTest::kMisalignedVector, "ptx-misaligned", {"ptx"}},
  };
}

TEST_F(SelfTestTest, FaultsAreRefusedUnderEverySchedule) {
  if (BuildName() == "gpu") GTEST_SKIP() << "faults are for the emulator: a GPU may hang on them";
  for (const Fault& fault : Faults()) {
    if (std::find(fault.builds.begin(), fault.builds.end(), BuildName()) == fault.builds.end()) continue;
    SCOPED_TRACE(fault.name);
    ForEachSchedule([&] {
      Run(fault.test);
      const std::vector<Violation> violations = TakeViolations();
      const auto found = std::find_if(violations.begin(), violations.end(),
                                      [&](const Violation& violation) { return violation.kind == fault.kind; });
      ASSERT_NE(found, violations.end()) << (violations.empty() ? "nothing was reported" : violations[0].kind);
      const bool after_launch = found->kind == "guard";
      EXPECT_EQ(error_, after_launch ? cudaSuccess : cudaErrorLaunchFailure);
    });
  }
}

// AddressSanitizer and UndefinedBehaviorSanitizer end the process.
TEST_F(SelfTestTest, SanitizersSeeOverrunsAndMisalignment) {
  if (BuildName() != "asan") GTEST_SKIP() << "only in the asan build";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Run(SelfTest::kWriteBehindArray), "heap-buffer-overflow");
  EXPECT_DEATH(Run(SelfTest::kSharedOverrun), "heap-buffer-overflow|out of bounds");
  EXPECT_DEATH(Run(SelfTest::kMisalignedVector), "misaligned address");
}

}  // namespace
}  // namespace quire::simt
