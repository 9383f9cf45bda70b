#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "model/constraint/constraint.h"
#include "model/constraint/network_builder.h"

// What the Compile functions share.
namespace quire::constraint {

// Where counts of repetitions stop: more than any automaton may have states.
inline constexpr int64_t kMaxCount = 1'000'000'000;

// kResourceExhausted if `source`, called `what`, is too long; kInvalidArgument if it is not UTF-8.
absl::Status CheckSource(const char* what, std::string_view source, const ConstraintLimits& limits);

// The constraint that rule `root` is.
ConstraintOr FinishConstraint(NetworkBuilder* builder, int32_t root, std::shared_ptr<const TokenVocabulary> vocabulary,
                              const ConstraintLimits& limits);

}  // namespace quire::constraint
