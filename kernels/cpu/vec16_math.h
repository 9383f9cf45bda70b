#pragma once

#include "kernels/exp_polynomial.h"

// Functions of Vec16 lanes, written once for all instruction sets. V is one of the three Vec16.
namespace quire {

// exp(x) to 2 units in the last place; 0 below -87.3, infinity above 88.3, NaN for NaN.
template <typename V>
V Exp(V x) {
  namespace ep = exp_polynomial;
  const V round = V::All(ep::kRound);
  const V shifted = V::Fma(x, V::All(ep::kLog2E), round);
  const V n = shifted - round;
  const V r = V::Fnma(n, V::All(ep::kLn2Low), V::Fnma(n, V::All(ep::kLn2High), x));
  V p = V::Fma(V::All(ep::kC4), r, V::All(ep::kC3));
  p = V::Fma(p, r, V::All(ep::kC2));
  p = V::Fma(p, r, V::All(ep::kC1));
  p = V::Fma(p, r, V::All(ep::kC0));
  p = V::Fma(r * r, p, r) + V::All(1);
  V result = V::MulPow2(p, shifted);
  result = V::SelectLess(x, V::All(ep::kMin), V::Zero(), result);
  result = V::SelectLess(V::All(ep::kMax), x, V::All(__builtin_inff()), result);
  return V::NanOr(x, result);
}

// tanh(x) within 2e-7 of the value.
template <typename V>
V Tanh(V x) {
  const V negative = V::Zero() - x;
  const V e = Exp<V>(V::All(-2) * V::Max(x, negative));  // of -2 |x|
  const V t = (V::All(1) - e) / (V::All(1) + e);
  return V::NanOr(x, V::SelectLess(x, V::Zero(), V::Zero() - t, t));
}

}  // namespace quire
