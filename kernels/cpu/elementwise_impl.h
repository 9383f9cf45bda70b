#pragma once

#include <cstdint>

#include "kernels/base/kv_layout.h"
#include "kernels/cpu/vec16_math.h"

// Row kernels of VectorKernels over a Vec16 type V. Included by the instruction-set units only.
namespace quire::elementwise {

// Calls body(i, n) for vectors of n = 16 values from 0 on, then for the rest.
template <typename V, typename F>
void ForVectors(int64_t count, F body) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, 16);
  if (i < count) body(i, static_cast<int>(count - i));
}

template <typename V>
V LoadUpTo(const float* p, int n) {
  return n == 16 ? V::Load(p) : V::LoadN(p, n);
}

template <typename V>
void StoreUpTo(V x, float* p, int n) {
  if (n == 16) {
    x.Store(p);
  } else {
    x.StoreN(p, n);
  }
}

template <typename V>
void AddRmsNorm(float* residual, const float* delta, const float* weight, float epsilon, float* out, int64_t count) {
  V squares = V::Zero();
  ForVectors<V>(count, [&](int64_t i, int n) {
    V x = LoadUpTo<V>(residual + i, n);
    if (delta != nullptr) {
      x = x + LoadUpTo<V>(delta + i, n);
      StoreUpTo(x, residual + i, n);
    }
    squares = V::Fma(x, x, squares);
  });
  const float mean = squares.Sum() / static_cast<float>(count);
  const V scale = V::All(1.0f / __builtin_sqrtf(mean + epsilon));
  ForVectors<V>(count, [&](int64_t i, int n) {
    StoreUpTo(LoadUpTo<V>(residual + i, n) * scale * LoadUpTo<V>(weight + i, n), out + i, n);
  });
}

template <typename V>
void Rotate(const float* cos_sin, int64_t half, float* head) {
  ForVectors<V>(half, [&](int64_t i, int n) {
    const V a = LoadUpTo<V>(head + i, n), b = LoadUpTo<V>(head + half + i, n);
    const V cos = LoadUpTo<V>(cos_sin + i, n), sin = LoadUpTo<V>(cos_sin + half + i, n);
    StoreUpTo(V::Fnma(b, sin, a * cos), head + i, n);
    StoreUpTo(V::Fma(a, sin, b * cos), head + half + i, n);
  });
}

template <typename V>
void StoreF16(const float* x, uint16_t* out, int64_t count) {
  ForVectors<V>(count, [&](int64_t i, int n) { LoadUpTo<V>(x + i, n).StoreF16N(out + i, n); });
}

template <typename V>
void StoreBf16(const float* x, uint16_t* out, int64_t count) {
  ForVectors<V>(count, [&](int64_t i, int n) { LoadUpTo<V>(x + i, n).StoreBf16N(out + i, n); });
}

template <typename V>
void StoreInt8(const float* x, int8_t* out, float* scale, int64_t count) {
  V largest = V::Zero(), finite = V::Zero();  // NaN in place of 0: something is not
  ForVectors<V>(count, [&](int64_t i, int n) {
    const V value = LoadUpTo<V>(x + i, n);
    largest = V::Max(V::Max(value, V::Zero() - value), largest);
    finite = V::Fma(value, V::Zero(), finite);
  });
  const float highest = largest.Highest(), zero_or_nan = finite.Sum();
  *scale = zero_or_nan == 0 ? KvInt8Scale(highest) : zero_or_nan;
  if (zero_or_nan == 0) {
    const V factor = V::All(KvInt8Factor(highest));
    ForVectors<V>(count, [&](int64_t i, int n) { (LoadUpTo<V>(x + i, n) * factor).StoreI8N(out + i, n); });
  } else {
    ForVectors<V>(count, [&](int64_t i, int n) { V::Zero().StoreI8N(out + i, n); });
  }
}

template <typename V>
void SiluMul(const float* gate, const float* up, float* out, int64_t count) {
  ForVectors<V>(count, [&](int64_t i, int n) {
    const V x = LoadUpTo<V>(gate + i, n);
    const V silu = x / (V::All(1) + Exp<V>(V::Zero() - x));
    StoreUpTo(silu * LoadUpTo<V>(up + i, n), out + i, n);
  });
}

}  // namespace quire::elementwise
