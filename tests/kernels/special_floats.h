#pragma once

#include <limits>

// Values that tests of kernels feed in.
namespace quire {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace quire
