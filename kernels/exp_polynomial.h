#pragma once

// The project's one exponential: exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 in two pieces, |r| <=
// 0.3466, exp(r) = 1 + r + r^2 (c0 + c1 r + c2 r^2 + c3 r^3 + c4 r^4). The coefficients interpolate (exp(r) - 1 - r) /
// r^2 at the Chebyshev nodes of that range; the polynomial's own relative error is 1.1e-8, and with the roundings of
// f32 the result is within 2 units in the last place. Constants only, so that units of all instruction sets may include
// it.
namespace quire::exp_polynomial {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRound = 0x1.8p+23f;       // adding it rounds to an integer, which stands in the low bits
inline constexpr float kLn2High = 0x1.62p-1f;     // 8 bits: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.c85fep-10f;  // ln 2 - kLn2High
inline constexpr float kC0 = 0x1p-1f;
inline constexpr float kC1 = 0x1.5554dcp-3f;
inline constexpr float kC2 = 0x1.55551ap-5f;
inline constexpr float kC3 = 0x1.120b7cp-7f;
inline constexpr float kC4 = 0x1.6d1116p-10f;
inline constexpr float kMin = -87.3f;  // below: 0, so that no result is subnormal
inline constexpr float kMax = 88.3f;   // above: infinity

}  // namespace quire::exp_polynomial
