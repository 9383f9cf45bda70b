#pragma once

#include <cstdint>
#include <string>

#include "model/chat/budget.h"

namespace quire::jinja {

// C's %e, %f and %g of a number that is not negative; `type` is one of eEfFgG. `alternate` keeps a point and, for g,
// zeros at the end.
std::string FloatFormat(double value, char type, int64_t precision, bool alternate, Budget& budget);

// round(value, digits), half to even on the exact decimal value; digits may be negative.
double RoundFloat(double value, int64_t digits);

}  // namespace quire::jinja
