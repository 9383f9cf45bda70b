#pragma once

// The rest of the vocabulary: atomics and intrinsics. Included by emulator.h.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/simt/emulator_core.h"

// --- atomics: relaxed, as in CUDA

namespace quire::simt {

template <typename T, typename Update>
T AtomicUpdate(T* address, Update update) {
  core::BeforeAtomic(address);
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T next = update(old);
  while (!__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    next = update(old);
  }
  core::AfterAtomic(address);
  return old;
}

}  // namespace quire::simt

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return quire::simt::AtomicUpdate(address, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return quire::simt::AtomicUpdate(address, [=](T old) { return old > value ? old : value; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return quire::simt::AtomicUpdate(address, [=](T old) { return old < value ? old : value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return quire::simt::AtomicUpdate(address, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return quire::simt::AtomicUpdate(address, [=](T old) { return old == expected ? value : old; });
}

// --- loads with cache hints, bits, mathematics

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x != 0 ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7))) & 0xff) << (8 * i);
  return result;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline void __trap() { quire::simt::ReportViolation("trap", "__trap() by a lane"); }
