#pragma once

namespace quire::testing {

// True in the sanitizer builds, which run up to 20 times slower: grids of sizes are thinned there, never emptied.
#ifdef QUIRE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quire::testing
