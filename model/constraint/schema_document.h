#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/constraint/budget.h"
#include "nlohmann/json.hpp"

namespace quire::constraint {

using Json = nlohmann::ordered_json;

// A schema's text, parsed and checked: all keywords known or harmless, references resolved. Owns the nodes that the
// rest of the compiler points to.
class SchemaDocument {
 public:
  // kInvalidArgument naming keyword and place; kResourceExhausted naming a limit.
  static absl::StatusOr<std::unique_ptr<SchemaDocument>> Parse(std::string_view text, const ConstraintLimits& limits);

  const Json& root() const { return root_; }
  // The schema that `reference` ("#/$defs/x") names. kInvalidArgument if there is none.
  absl::StatusOr<const Json*> Resolve(const std::string& reference);

 private:
  absl::Status Check(const Json& schema, const std::string& where);
  absl::Status CheckKeyword(const Json& schema, const std::string& keyword, const Json& value,
                            const std::string& where);

  Json root_;
  absl::flat_hash_map<std::string, const Json*> anchors_;
  absl::flat_hash_set<const Json*> checked_;  // references may name what stands where no schema is expected
};

// One schema as a demand on a value; kinds of choice already made are left out.
struct Demand {
  const Json* schema = nullptr;  // an object or false
  bool without_any_of = false, without_one_of = false;
  bool operator==(const Demand& other) const {
    return schema == other.schema && without_any_of == other.without_any_of && without_one_of == other.without_one_of;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Demand& d) {
    return H::combine(std::move(h), d.schema, d.without_any_of, d.without_one_of);
  }
};

// Schemas that a value must fulfil all, in the order in which they were met; none: any value. allOf and $ref are
// resolved into their parts. Equal vectors are the same language: this is what rules are made for, so recursive schemas
// end.
using Demands = std::vector<Demand>;

// Adds `schema` and all that its allOf and $ref bring along.
absl::Status AddDemand(SchemaDocument* document, const Json& schema, Demands* demands);

}  // namespace quire::constraint
