#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/half.h"

// Sixteen f32 lanes, the unit in which the CPU backend defines its arithmetic (kernels/README.md). This one is plain
// code, the twin that tests compare the others with; vec16_avx2.h and vec16_avx512.h have the same members and give the
// same bits, the payload of NaNs apart. Templates over them are instantiated once for each instruction set.
namespace quire::scalar {

struct Vec16 {
  static constexpr const char* kName = "scalar";
  // Blocking that fits the registers: keys of one dot-product block; rows and vectors of one value-sum block.
  static constexpr int kDotKeys = 1;
  static constexpr int kSumRows = 1;
  static constexpr int kSumVectors = 1;

  float lanes[16];

  template <typename F>
  static Vec16 Make(F lane) {
    Vec16 result;
    for (int l = 0; l < 16; ++l) result.lanes[l] = lane(l);
    return result;
  }

  static Vec16 Zero() { return All(0); }
  static Vec16 All(float value) {
    return Make([=](int) { return value; });
  }
  // 0, 1, ... 15.
  static Vec16 Iota() {
    return Make([](int l) { return static_cast<float>(l); });
  }
  static Vec16 Load(const float* p) {
    return Make([=](int l) { return p[l]; });
  }
  // The first n in [0, 16] values, then zeros. Touches only those.
  static Vec16 LoadN(const float* p, int n) {
    return Make([=](int l) { return l < n ? p[l] : 0.0f; });
  }
  static Vec16 LoadF16(const uint16_t* p) {
    return Make([=](int l) { return F16ToF32(p[l]); });
  }
  static Vec16 LoadF16N(const uint16_t* p, int n) {
    return Make([=](int l) { return l < n ? F16ToF32(p[l]) : 0.0f; });
  }
  static Vec16 LoadBf16(const uint16_t* p) { return LoadBf16N(p, 16); }
  static Vec16 LoadBf16N(const uint16_t* p, int n) {
    return Make([=](int l) { return l < n ? Bf16ToF32(p[l]) : 0.0f; });
  }
  static Vec16 LoadI8(const int8_t* p) { return LoadI8N(p, 16); }
  static Vec16 LoadI8N(const int8_t* p, int n) {
    return Make([=](int l) { return l < n ? static_cast<float>(p[l]) : 0.0f; });
  }
  void Store(float* p) const { StoreN(p, 16); }
  void StoreN(float* p, int n) const {
    for (int l = 0; l < n; ++l) p[l] = lanes[l];
  }
  // Beyond +-65504: +-65504; NaN stays NaN.
  void StoreF16N(uint16_t* p, int n) const {
    for (int l = 0; l < n; ++l) {
      const float x = lanes[l];
      p[l] = F32ToF16(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
    }
  }
  void StoreBf16N(uint16_t* p, int n) const {
    for (int l = 0; l < n; ++l) p[l] = F32ToBf16(lanes[l]);
  }
  // Nearest even. REQUIRES: that lies within -128 .. 127.
  void StoreI8N(int8_t* p, int n) const {
    for (int l = 0; l < n; ++l) p[l] = static_cast<int8_t>(std::nearbyint(lanes[l]));
  }
  float First() const { return lanes[0]; }

  friend Vec16 operator+(const Vec16& a, const Vec16& b) {
    return Make([&](int l) { return a.lanes[l] + b.lanes[l]; });
  }
  friend Vec16 operator-(const Vec16& a, const Vec16& b) {
    return Make([&](int l) { return a.lanes[l] - b.lanes[l]; });
  }
  friend Vec16 operator*(const Vec16& a, const Vec16& b) {
    return Make([&](int l) { return a.lanes[l] * b.lanes[l]; });
  }
  friend Vec16 operator/(const Vec16& a, const Vec16& b) {
    return Make([&](int l) { return a.lanes[l] / b.lanes[l]; });
  }
  // a * b + c and c - a * b, rounded once.
  static Vec16 Fma(const Vec16& a, const Vec16& b, const Vec16& c) {
    return Make([&](int l) { return std::fma(a.lanes[l], b.lanes[l], c.lanes[l]); });
  }
  static Vec16 Fnma(const Vec16& a, const Vec16& b, const Vec16& c) {
    return Make([&](int l) { return std::fma(-a.lanes[l], b.lanes[l], c.lanes[l]); });
  }
  // a > b ? a : b.
  static Vec16 Max(const Vec16& a, const Vec16& b) {
    return Make([&](int l) { return a.lanes[l] > b.lanes[l] ? a.lanes[l] : b.lanes[l]; });
  }
  // a < b ? x : y.
  static Vec16 SelectLess(const Vec16& a, const Vec16& b, const Vec16& x, const Vec16& y) {
    return Make([&](int l) { return a.lanes[l] < b.lanes[l] ? x.lanes[l] : y.lanes[l]; });
  }
  // a is NaN ? a : x.
  static Vec16 NanOr(const Vec16& a, const Vec16& x) {
    return Make([&](int l) { return a.lanes[l] != a.lanes[l] ? a.lanes[l] : x.lanes[l]; });
  }
  // x * 2^n where n is the low bits of `shifted` as an integer: see exp_polynomial::kRound.
  static Vec16 MulPow2(const Vec16& x, const Vec16& shifted) {
    return Make([&](int l) {
      return std::bit_cast<float>(std::bit_cast<uint32_t>(x.lanes[l]) +
                                  (std::bit_cast<uint32_t>(shifted.lanes[l]) << 23));
    });
  }

  // The tree: lanes l and l + 8, then l + 4, l + 2, l + 1.
  float Sum() const {
    Vec16 x = *this;
    for (int step = 8; step > 0; step /= 2) {
      for (int l = 0; l < step; ++l) x.lanes[l] = x.lanes[l] + x.lanes[l + step];
    }
    return x.lanes[0];
  }
  // The same tree with Max.
  float Highest() const {
    Vec16 x = *this;
    for (int step = 8; step > 0; step /= 2) {
      for (int l = 0; l < step; ++l) x.lanes[l] = x.lanes[l] > x.lanes[l + step] ? x.lanes[l] : x.lanes[l + step];
    }
    return x.lanes[0];
  }
  // Lane j: v[j].Sum().
  static Vec16 Sums(const Vec16* v) {
    return Make([=](int l) { return v[l].Sum(); });
  }
};

}  // namespace quire::scalar
