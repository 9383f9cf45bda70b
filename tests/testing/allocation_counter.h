#pragma once

#include <cstdint>

// Linking quire_allocation_counter replaces the global operator new of a test binary by one that counts.
namespace quire::testing {

// Calls of operator new so far: of the calling thread, and of all threads.
int64_t ThreadAllocations();
int64_t TotalAllocations();

}  // namespace quire::testing
