#include "kernels/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

// The numbers in a file; none from where it says "max" (or anything else) on.
std::vector<int64_t> ReadNumbers(const std::string& path) {
  std::ifstream file(path);
  std::vector<int64_t> numbers;
  int64_t number = 0;
  for (std::string text; file >> text && absl::SimpleAtoi(text, &number);) numbers.push_back(number);
  return numbers;
}

// Bytes that a folder of a memory group allows.
std::optional<double> MemoryLimit(const std::string& folder, bool is_version_2) {
  const std::vector<int64_t> bytes =
      ReadNumbers(absl::StrCat(folder, is_version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
  if (bytes.empty()) return std::nullopt;
  return static_cast<double>(bytes[0]);
}

// Processors that a folder of a cpu group allows: microseconds of their time in a period of so many.
std::optional<double> ProcessorLimit(const std::string& folder, bool is_version_2) {
  std::vector<int64_t> quota;
  if (is_version_2) {
    quota = ReadNumbers(absl::StrCat(folder, "/cpu.max"));
  } else {
    quota = ReadNumbers(absl::StrCat(folder, "/cpu.cfs_quota_us"));
    for (const int64_t period : ReadNumbers(absl::StrCat(folder, "/cpu.cfs_period_us"))) quota.push_back(period);
  }
  if (quota.size() != 2 || quota[0] <= 0 || quota[1] <= 0) return std::nullopt;  // -1 is none
  return static_cast<double>(quota[0]) / static_cast<double>(quota[1]);
}

// The lowest limit of the process's groups of `controller`, from its own up to the mount itself; infinity if none.
template <typename Limit>
double LowestLimit(const std::string& root, const std::string& controller, Limit limit_of) {
  double lowest = std::numeric_limits<double>::infinity();
  // Lines "id:controllers:path"; version 2 has id 0 and no controllers.
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const bool is_version_2 = fields[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (!is_version_2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    std::vector<std::string> parts = {absl::StrCat(root, "/sys/fs/cgroup")};
    if (!is_version_2) parts.push_back(controller);
    const size_t mount = parts.size();
    for (const absl::string_view part : absl::StrSplit(fields[2], '/', absl::SkipEmpty())) parts.emplace_back(part);
    for (; parts.size() >= mount; parts.pop_back()) {
      lowest = std::min(lowest, limit_of(absl::StrJoin(parts, "/"), is_version_2).value_or(lowest));
    }
  }
  return lowest;
}

int PhysicalCores(const std::string& root) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::set<std::string> cores;  // lists of sibling threads, one a core
  int cpus = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    ++cpus;
    std::ifstream file(absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (std::getline(file, siblings)) cores.insert(siblings);
  }
  return cores.empty() ? cpus : static_cast<int>(cores.size());
}

}  // namespace

int64_t UsableMemoryBytes(const std::string& root) {
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  const double limit = LowestLimit(root, "memory", MemoryLimit);
  return limit < static_cast<double>(bytes) ? static_cast<int64_t>(limit) : bytes;
}

int UsableCores(const std::string& root) {
  const int cores = PhysicalCores(root);
  const double limit = LowestLimit(root, "cpu", ProcessorLimit);
  return std::max(1, limit < cores ? static_cast<int>(limit) : cores);
}

}  // namespace quire
