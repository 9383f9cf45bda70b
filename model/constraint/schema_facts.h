#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/constraint/schema_document.h"
#include "model/constraint/schema_number.h"
#include "model/constraint/schema_string.h"

namespace quire::constraint {

// Types of JSON Schema as bits. kFraction: numbers that are no integers.
enum TypeBits : uint32_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127
};

struct ArrayDemand {
  std::vector<Demands> prefix;  // of the first items
  Demands rest;                 // of all others
  int64_t min_items = 0;
  std::optional<int64_t> max_items;
};

struct ObjectDemand {
  struct Property {
    std::string name;
    Demands value;
    bool is_required = false;
  };
  std::vector<Property> properties;   // those with a name: declared ones first, then others that are required
  std::vector<std::string> patterns;  // of patternProperties
  int64_t min_properties = 0;
  std::optional<int64_t> max_properties;
};

// What demands, choices apart, say together about a value of each type.
struct SchemaFacts {
  uint32_t types = kAllTypes;  // none: nothing fits
  bool has_values = false;     // const or enum
  NumberDemand number;
  StringDemand string;
  ArrayDemand array;
  ObjectDemand object;
};

absl::StatusOr<SchemaFacts> FactsOf(SchemaDocument* document, const Demands& demands, Budget* budget);

// What is demanded of the value of a key that is in no `properties`, given which patterns the key matches.
absl::StatusOr<Demands> UnknownKeyDemands(SchemaDocument* document, const Demands& demands,
                                          const std::vector<std::string>& matched);

// The candidates of one const or enum, that of *source.
std::vector<const Json*> Values(const Demands& demands, const Json** source);
// Whether `value` fulfils all demands. source: a schema whose const or enum is known to have it; may be null.
absl::StatusOr<bool> Fulfils(SchemaDocument* document, const Json& value, const Demands& demands, const Json* source,
                             Budget* budget);

// True only if no value fulfils both. False if that cannot be told.
absl::StatusOr<bool> AreDisjoint(SchemaDocument* document, const Demands& a, const Demands& b, Budget* budget,
                                 int depth = 0);

// The first demand with a choice that is not made yet; null if there is none. *one_of: which kind.
const Demand* FindChoice(const Demands& demands, bool* one_of);
// `demands` with that choice made: branch `index`.
absl::StatusOr<Demands> WithBranch(SchemaDocument* document, const Demands& demands, const Demand& choice, bool one_of,
                                   size_t index);

}  // namespace quire::constraint
