#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/constraint/constraint.h"
#include "model/constraint/network_builder.h"
#include "model/constraint/schema_document.h"

// What the Compile functions share.
namespace quire::constraint {

// Where counts of repetitions stop: more than any automaton may have states.
inline constexpr int64_t kMaxCount = 1'000'000'000;

// kResourceExhausted if `source`, called `what`, is too long; kInvalidArgument if it is not UTF-8.
absl::Status CheckSource(const char* what, std::string_view source, const ConstraintLimits& limits);

// How a value is written that a schema describes.
enum class SchemaForm : uint8_t {
  kJson,
  kJsonObject,       // no other value than an object
  kPythonArguments,  // an object as the keyword arguments of a call in Python, without parentheses
};

// The rule of what `document` describes. It is not used afterwards.
absl::StatusOr<int32_t> AddSchema(SchemaDocument* document, SchemaForm form, JsonWhitespace whitespace,
                                  NetworkBuilder* builder);

// The constraint that rule `root` behind reasoning is.
ConstraintOr FinishConstraint(NetworkBuilder* builder, int32_t root, std::shared_ptr<const TokenVocabulary> vocabulary,
                              const ConstraintLimits& limits, Reasoning reasoning);

}  // namespace quire::constraint
