#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::testing {

// Takes bytes as a schedule trace: verifies, prints and simulates it. Must neither crash nor run away, whatever they
// are. Returns how many records were replayed.
int64_t UseAsTrace(const uint8_t* data, size_t size);

}  // namespace quire::testing
