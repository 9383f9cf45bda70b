#include "model/constraint/schema_facts.h"

#include <algorithm>

#include "kernels/base/status_macros.h"
#include "model/constraint/regex_parser.h"

namespace quire::constraint {
namespace {

uint32_t TypeBit(const std::string& name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFraction;
  if (name == "string") return kString;
  return name == "array" ? kArray : kObject;
}

const Json* Find(const Json& schema, const char* key) {
  const auto it = schema.find(key);
  return it == schema.end() ? nullptr : &*it;
}

int64_t Count(const Json& value) { return static_cast<int64_t>(value.get<double>()); }

void RaiseTo(const Json* value, int64_t* minimum) {
  if (value != nullptr) *minimum = std::max(*minimum, Count(*value));
}
void LowerTo(const Json* value, std::optional<int64_t>* maximum) {
  if (value != nullptr) *maximum = std::min(maximum->value_or(Count(*value)), Count(*value));
}

void AddNumberFacts(const Json& schema, NumberDemand* number) {
  constexpr std::pair<const char*, NumberDemand::Relation> kBounds[] = {
      {"minimum", NumberDemand::Relation::kAtLeast},
      {"exclusiveMinimum", NumberDemand::Relation::kAbove},
      {"maximum", NumberDemand::Relation::kAtMost},
      {"exclusiveMaximum", NumberDemand::Relation::kBelow}};
  for (const auto& [keyword, relation] : kBounds) {
    if (const Json* value = Find(schema, keyword)) number->bounds.push_back({relation, value->dump()});
  }
  if (const Json* value = Find(schema, "multipleOf")) number->multiples_of.push_back(value->dump());
}

absl::Status AddStringFacts(const Json& schema, StringDemand* string) {
  RaiseTo(Find(schema, "minLength"), &string->min_length);
  LowerTo(Find(schema, "maxLength"), &string->max_length);
  if (const Json* value = Find(schema, "pattern")) string->patterns.push_back(value->get<std::string>());
  if (const Json* value = Find(schema, "format")) {
    QUIRE_ASSIGN_OR_RETURN(const auto pattern, FormatPattern(value->get<std::string>()));
    if (pattern) string->patterns.push_back(*pattern);
  }
  return absl::OkStatus();
}

absl::Status AddArrayFacts(SchemaDocument* document, const Demands& demands, ArrayDemand* array) {
  size_t num_prefix = 0;
  for (const Demand& demand : demands) {
    RaiseTo(Find(*demand.schema, "minItems"), &array->min_items);
    LowerTo(Find(*demand.schema, "maxItems"), &array->max_items);
    if (const Json* prefix = Find(*demand.schema, "prefixItems")) num_prefix = std::max(num_prefix, prefix->size());
  }
  array->prefix.resize(num_prefix);
  for (const Demand& demand : demands) {
    const Json* prefix = Find(*demand.schema, "prefixItems");
    const Json* items = Find(*demand.schema, "items");
    for (size_t i = 0; i < num_prefix; ++i) {
      const Json* item = prefix != nullptr && i < prefix->size() ? &(*prefix)[i] : items;
      if (item != nullptr) QUIRE_RETURN_IF_ERROR(AddDemand(document, *item, &array->prefix[i]));
    }
    if (items != nullptr) QUIRE_RETURN_IF_ERROR(AddDemand(document, *items, &array->rest));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PatternMatches(const std::string& pattern, const std::string& text, Budget* budget) {
  StringDemand demand;
  demand.patterns.push_back(pattern);
  QUIRE_ASSIGN_OR_RETURN(const CharDfa dfa, StringDfa(demand, budget));
  return dfa.Accepts(text);
}

// What `schema` demands of the value of key `name`, which matches those of `patterns` that are in `matched`.
absl::Status AddValueDemands(SchemaDocument* document, const Json& schema, const std::string* name,
                             const std::vector<std::string>& matched, Demands* demands) {
  bool is_known = false;
  if (const Json* properties = Find(schema, "properties"); properties != nullptr && name != nullptr) {
    if (const Json* value = Find(*properties, name->c_str()); value != nullptr) {
      is_known = true;
      QUIRE_RETURN_IF_ERROR(AddDemand(document, *value, demands));
    }
  }
  if (const Json* patterns = Find(schema, "patternProperties")) {
    for (const auto& [pattern, value] : patterns->items()) {
      if (std::find(matched.begin(), matched.end(), pattern) == matched.end()) continue;
      is_known = true;
      QUIRE_RETURN_IF_ERROR(AddDemand(document, value, demands));
    }
  }
  if (const Json* others = Find(schema, "additionalProperties"); others != nullptr && !is_known) {
    return AddDemand(document, *others, demands);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Matching(const std::vector<std::string>& patterns, const std::string& name,
                                                  Budget* budget) {
  std::vector<std::string> matched;
  for (const std::string& pattern : patterns) {
    QUIRE_ASSIGN_OR_RETURN(const bool matches, PatternMatches(pattern, name, budget));
    if (matches) matched.push_back(pattern);
  }
  return matched;
}

absl::Status AddObjectFacts(SchemaDocument* document, const Demands& demands, Budget* budget, ObjectDemand* object) {
  absl::flat_hash_map<std::string, size_t> indices;
  const auto property = [&](const std::string& name) -> ObjectDemand::Property& {
    const auto [it, is_new] = indices.try_emplace(name, object->properties.size());
    if (is_new) object->properties.push_back({name, {}, false});
    return object->properties[it->second];
  };
  for (const Demand& demand : demands) {
    RaiseTo(Find(*demand.schema, "minProperties"), &object->min_properties);
    LowerTo(Find(*demand.schema, "maxProperties"), &object->max_properties);
    if (const Json* properties = Find(*demand.schema, "properties")) {
      for (const auto& item : properties->items()) property(item.key());
    }
    if (const Json* patterns = Find(*demand.schema, "patternProperties")) {
      for (const auto& item : patterns->items()) {
        auto& known = object->patterns;
        if (std::find(known.begin(), known.end(), item.key()) == known.end()) known.push_back(item.key());
      }
    }
  }
  for (const Demand& demand : demands) {
    if (const Json* required = Find(*demand.schema, "required")) {
      for (const Json& name : *required) property(name.get<std::string>()).is_required = true;
    }
  }
  for (ObjectDemand::Property& known : object->properties) {
    QUIRE_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(demands.size())));
    QUIRE_ASSIGN_OR_RETURN(const auto matched, Matching(object->patterns, known.name, budget));
    for (const Demand& demand : demands) {
      QUIRE_RETURN_IF_ERROR(AddValueDemands(document, *demand.schema, &known.name, matched, &known.value));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SchemaFacts> FactsOf(SchemaDocument* document, const Demands& demands, Budget* budget) {
  SchemaFacts facts;
  for (const Demand& demand : demands) {
    if (!demand.schema->is_object()) {
      facts.types = 0;
      return facts;
    }
    const Json& schema = *demand.schema;
    if (const Json* type = Find(schema, "type")) {
      uint32_t types = 0;
      if (type->is_string()) types = TypeBit(type->get<std::string>());
      if (type->is_array()) {
        for (const Json& name : *type) types |= TypeBit(name.get<std::string>());
      }
      facts.types &= types;
    }
    facts.has_values |= Find(schema, "const") != nullptr || Find(schema, "enum") != nullptr;
    AddNumberFacts(schema, &facts.number);
    if ((facts.types & kString) != 0) QUIRE_RETURN_IF_ERROR(AddStringFacts(schema, &facts.string));
  }
  facts.number.is_integer = (facts.types & kFraction) == 0;
  if ((facts.types & kArray) != 0) QUIRE_RETURN_IF_ERROR(AddArrayFacts(document, demands, &facts.array));
  if ((facts.types & kObject) != 0) QUIRE_RETURN_IF_ERROR(AddObjectFacts(document, demands, budget, &facts.object));
  return facts;
}

absl::StatusOr<Demands> UnknownKeyDemands(SchemaDocument* document, const Demands& demands,
                                          const std::vector<std::string>& matched) {
  Demands result;
  for (const Demand& demand : demands) {
    QUIRE_RETURN_IF_ERROR(AddValueDemands(document, *demand.schema, nullptr, matched, &result));
  }
  return result;
}

std::vector<const Json*> Values(const Demands& demands, const Json** source) {
  std::vector<const Json*> values;
  for (const Demand& demand : demands) {
    if (!demand.schema->is_object()) continue;
    *source = demand.schema;
    if (const Json* value = Find(*demand.schema, "const")) return {value};
    const Json* list = Find(*demand.schema, "enum");
    if (list == nullptr) continue;
    for (const Json& value : *list) values.push_back(&value);
    break;
  }
  return values;
}

const Demand* FindChoice(const Demands& demands, bool* one_of) {
  for (const Demand& demand : demands) {
    if (!demand.schema->is_object()) continue;
    *one_of = false;
    if (!demand.without_any_of && Find(*demand.schema, "anyOf") != nullptr) return &demand;
    *one_of = true;
    if (!demand.without_one_of && Find(*demand.schema, "oneOf") != nullptr) return &demand;
  }
  return nullptr;
}

absl::StatusOr<Demands> WithBranch(SchemaDocument* document, const Demands& demands, const Demand& choice, bool one_of,
                                   size_t index) {
  Demands result = demands;
  for (Demand& demand : result) {
    if (demand == choice) (one_of ? demand.without_one_of : demand.without_any_of) = true;
  }
  QUIRE_RETURN_IF_ERROR(AddDemand(document, (*choice.schema)[one_of ? "oneOf" : "anyOf"][index], &result));
  return result;
}

}  // namespace quire::constraint
