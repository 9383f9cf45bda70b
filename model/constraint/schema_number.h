#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/constraint/network_builder.h"

namespace quire::constraint {

// What a schema demands of a number. Decimal numbers are texts as JSON has them.
struct NumberDemand {
  enum class Relation { kAtLeast, kAbove, kAtMost, kBelow };
  struct Bound {
    Relation relation;
    std::string value;
  };
  bool is_integer = false;
  std::vector<Bound> bounds;
  std::vector<std::string> multiples_of;
};

// The numbers that fulfil it. Without bounds and multiples all ways to write a number; with them no exponent. An
// integer has neither fraction nor exponent. Minus zero only where negative numbers are allowed too.
absl::Status AddNumber(const NumberDemand& demand, int32_t from, int32_t to, NetworkBuilder* builder);

}  // namespace quire::constraint
