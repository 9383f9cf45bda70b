#include "kernels/host_limits.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

// Files below a folder that stands for "/".
class HostLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "host_limits";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(HostLimitsTest, WithoutFilesTheMachineIsTheLimit) {
  EXPECT_GT(UsableMemoryBytes(root_), 0);
  EXPECT_GE(UsableCores(root_), 1);
}

TEST_F(HostLimitsTest, ThisMachineHasMemoryAndCores) {
  EXPECT_GT(UsableMemoryBytes(), 0);
  EXPECT_GE(UsableCores(), 1);
}

TEST_F(HostLimitsTest, MemoryIsTheLowestOfTheGroupsAbove) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  const int64_t machine = UsableMemoryBytes(root_);
  Write("/sys/fs/cgroup/a/memory.max", "1048576\n");
  EXPECT_EQ(UsableMemoryBytes(root_), 1048576);
  Write("/sys/fs/cgroup/memory.max", "65536\n");
  EXPECT_EQ(UsableMemoryBytes(root_), 65536);
  EXPECT_GT(machine, 1048576);
}

TEST_F(HostLimitsTest, MemoryOfVersion1) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n");
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2097152\n");
  EXPECT_EQ(UsableMemoryBytes(root_), 2097152);
}

TEST_F(HostLimitsTest, AQuotaOfProcessorTimeIsRoundedDownButNotToNothing) {
  const int all = UsableCores(root_);
  if (all < 2) GTEST_SKIP() << "one processor: a quota takes nothing away";
  Write("/proc/self/cgroup", "0::/pod\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), all);
  Write("/sys/fs/cgroup/pod/cpu.max", "190000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
  Write("/sys/fs/cgroup/pod/cpu.max", "20000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
  Write("/sys/fs/cgroup/pod/cpu.max", "100000000 100000\n");
  EXPECT_GE(UsableCores(root_), 2);
  Write("/sys/fs/cgroup/cpu.max", "100000 100000\n");  // of the group above
  EXPECT_EQ(UsableCores(root_), 1);
}

TEST_F(HostLimitsTest, QuotasOfVersion1) {
  if (UsableCores(root_) < 2) GTEST_SKIP() << "one processor: a quota takes nothing away";
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/pod\n1:name=systemd:/\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_GE(UsableCores(root_), 2);
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
}

TEST_F(HostLimitsTest, BrokenFilesLimitNothing) {
  Write("/proc/self/cgroup", "nonsense\n0:\n0::/../..\n");
  Write("/sys/fs/cgroup/cpu.max", "0 0\n");
  Write("/sys/fs/cgroup/memory.max", "many\n");
  EXPECT_GE(UsableCores(root_), 1);
  EXPECT_GT(UsableMemoryBytes(root_), 1 << 20);
}

TEST_F(HostLimitsTest, HyperThreadsOfOneCoreCountOnce) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", "0-1023\n");
  }
  EXPECT_EQ(UsableCores(root_), 1);
}

}  // namespace
}  // namespace quire
