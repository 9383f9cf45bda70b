#pragma once

#include <cstdint>
#include <string>

// What this process may use of its machine: the machine's own, less what its affinity mask and its control groups
// (versions 1 and 2, each group and those above it) leave out. Any thread; files that are not there limit nothing.
// `root` is put before every path (for tests).
namespace quire {

// Bytes of memory.
int64_t UsableMemoryBytes(const std::string& root = "");

// Threads worth computing with, >= 1: physical cores of the affinity mask (hyper-threads of one core count once), and
// at most the whole processors of a quota of processor time. A quota of 2.5 gives 2: with a third thread all of them
// would stand still, together, for the rest of each period.
int UsableCores(const std::string& root = "");

}  // namespace quire
