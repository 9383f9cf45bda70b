// Single values against schemas, and schemas against each other: for const, enum and oneOf.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/status_macros.h"
#include "model/constraint/schema_facts.h"

namespace quire::constraint {
namespace {

constexpr int kMaxDepth = 16;  // of comparisons of schemas; deeper ones count as not disjoint

bool IsWhole(const Json& value) {
  return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
}

uint32_t TypeOf(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number()) return IsWhole(value) ? kInteger : kFraction;
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

// Equal as JSON Schema has it: whatever the order of keys.
bool AreEqual(const Json& a, const Json& b) { return nlohmann::json(a) == nlohmann::json(b); }

bool FulfilsNumber(double value, const NumberDemand& demand) {
  for (const NumberDemand::Bound& bound : demand.bounds) {
    const double limit = Json::parse(bound.value).get<double>();
    const bool fits = bound.relation == NumberDemand::Relation::kAtLeast  ? value >= limit
                      : bound.relation == NumberDemand::Relation::kAbove  ? value > limit
                      : bound.relation == NumberDemand::Relation::kAtMost ? value <= limit
                                                                          : value < limit;
    if (!fits) return false;
  }
  return std::all_of(demand.multiples_of.begin(), demand.multiples_of.end(), [&](const std::string& factor) {
    const double quotient = value / Json::parse(factor).get<double>();
    return std::abs(quotient - std::round(quotient)) <= 1e-9 * std::max(1.0, std::abs(quotient));
  });
}

absl::StatusOr<bool> FulfilsArray(SchemaDocument* document, const Json& value, const ArrayDemand& demand,
                                  Budget* budget) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < demand.min_items || size > demand.max_items.value_or(size)) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const Demands& of_item = i < demand.prefix.size() ? demand.prefix[i] : demand.rest;
    QUIRE_ASSIGN_OR_RETURN(const bool fits, Fulfils(document, value[i], of_item, nullptr, budget));
    if (!fits) return false;
  }
  return true;
}

absl::StatusOr<bool> FulfilsObject(SchemaDocument* document, const Json& value, const Demands& demands,
                                   const ObjectDemand& demand, Budget* budget) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < demand.min_properties || size > demand.max_properties.value_or(size)) return false;
  for (const ObjectDemand::Property& property : demand.properties) {
    const auto it = value.find(property.name);
    if (it == value.end()) {
      if (property.is_required) return false;
      continue;
    }
    QUIRE_ASSIGN_OR_RETURN(const bool fits, Fulfils(document, *it, property.value, nullptr, budget));
    if (!fits) return false;
  }
  for (const auto& item : value.items()) {
    const auto is_it = [&](const ObjectDemand::Property& property) { return property.name == item.key(); };
    if (std::any_of(demand.properties.begin(), demand.properties.end(), is_it)) continue;
    std::vector<std::string> matched;
    for (const std::string& pattern : demand.patterns) {
      StringDemand of_key;
      of_key.patterns = {pattern};
      QUIRE_ASSIGN_OR_RETURN(const CharDfa dfa, StringDfa(of_key, budget));
      if (dfa.Accepts(item.key())) matched.push_back(pattern);
    }
    QUIRE_ASSIGN_OR_RETURN(const Demands of_value, UnknownKeyDemands(document, demands, matched));
    QUIRE_ASSIGN_OR_RETURN(const bool fits, Fulfils(document, item.value(), of_value, nullptr, budget));
    if (!fits) return false;
  }
  return true;
}

// Bounds as an interval; exclusive ones count as inclusive.
std::pair<double, double> Interval(const NumberDemand& demand) {
  double low = -std::numeric_limits<double>::infinity(), high = -low;
  for (const NumberDemand::Bound& bound : demand.bounds) {
    const double value = Json::parse(bound.value).get<double>();
    const bool is_lower =
        bound.relation == NumberDemand::Relation::kAtLeast || bound.relation == NumberDemand::Relation::kAbove;
    if (is_lower) {
      low = std::max(low, value);
    } else {
      high = std::min(high, value);
    }
  }
  return {low, high};
}

// Whether objects of both differ in some key: one that a side requires and for which the sides allow disjoint values.
absl::StatusOr<bool> AreObjectsDisjoint(SchemaDocument* document, const Demands& a, const SchemaFacts& of_a,
                                        const Demands& b, const SchemaFacts& of_b, Budget* budget, int depth) {
  const auto find = [](const ObjectDemand& object, const std::string& name) {
    return std::find_if(object.properties.begin(), object.properties.end(),
                        [&](const ObjectDemand::Property& property) { return property.name == name; });
  };
  for (const auto* side : {&of_a, &of_b}) {
    const ObjectDemand& other = side == &of_a ? of_b.object : of_a.object;
    for (const ObjectDemand::Property& property : side->object.properties) {
      if (!property.is_required) continue;
      Demands other_value;
      if (const auto it = find(other, property.name); it != other.properties.end()) {
        other_value = it->value;
      } else if (other.patterns.empty()) {
        QUIRE_ASSIGN_OR_RETURN(other_value, UnknownKeyDemands(document, side == &of_a ? b : a, {}));
      }
      QUIRE_ASSIGN_OR_RETURN(const bool disjoint,
                             AreDisjoint(document, property.value, other_value, budget, depth + 1));
      if (disjoint) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> Fulfils(SchemaDocument* document, const Json& value, const Demands& demands, const Json* source,
                             Budget* budget) {
  QUIRE_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(demands.size()) + 1));
  bool one_of = false;
  if (const Demand* choice = FindChoice(demands, &one_of)) {
    const size_t num_branches = (*choice->schema)[one_of ? "oneOf" : "anyOf"].size();
    int fitting = 0;
    for (size_t i = 0; i < num_branches; ++i) {
      QUIRE_ASSIGN_OR_RETURN(const Demands branch, WithBranch(document, demands, *choice, one_of, i));
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fulfils(document, value, branch, source, budget));
      fitting += fits;
    }
    return one_of ? fitting == 1 : fitting > 0;
  }
  for (const Demand& demand : demands) {
    if (!demand.schema->is_object()) return false;
    const auto fixed = demand.schema->find("const");
    if (demand.schema == source && fixed == demand.schema->end()) continue;
    if (fixed != demand.schema->end() && !AreEqual(*fixed, value)) return false;
    const auto list = demand.schema->find("enum");
    if (list == demand.schema->end()) continue;
    QUIRE_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(list->size())));
    // By kind first: a copy for each comparison would be slow for long lists of strings.
    const bool found = std::any_of(list->begin(), list->end(), [&](const Json& known) {
      return value.is_structured() ? known.type() == value.type() && AreEqual(known, value) : known == value;
    });
    if (!found) return false;
  }
  QUIRE_ASSIGN_OR_RETURN(const SchemaFacts facts, FactsOf(document, demands, budget));
  const uint32_t type = TypeOf(value);
  if ((facts.types & type) == 0) return false;
  if (type == kInteger || type == kFraction) return FulfilsNumber(value.get<double>(), facts.number);
  if (type == kString && !facts.string.is_free()) {
    QUIRE_ASSIGN_OR_RETURN(const CharDfa dfa, StringDfa(facts.string, budget));
    return dfa.Accepts(value.get_ref<const std::string&>());
  }
  if (type == kArray) return FulfilsArray(document, value, facts.array, budget);
  if (type == kObject) return FulfilsObject(document, value, demands, facts.object, budget);
  return true;
}

absl::StatusOr<bool> AreDisjoint(SchemaDocument* document, const Demands& a, const Demands& b, Budget* budget,
                                 int depth) {
  QUIRE_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(a.size() + b.size()) + 1));
  if (depth > kMaxDepth) return false;
  for (const auto* side : {&a, &b}) {
    bool one_of = false;
    const Demand* choice = FindChoice(*side, &one_of);
    if (choice == nullptr) continue;
    const size_t num_branches = (*choice->schema)[one_of ? "oneOf" : "anyOf"].size();
    for (size_t i = 0; i < num_branches; ++i) {
      QUIRE_ASSIGN_OR_RETURN(const Demands branch, WithBranch(document, *side, *choice, one_of, i));
      QUIRE_ASSIGN_OR_RETURN(const bool disjoint, AreDisjoint(document, branch, side == &a ? b : a, budget, depth + 1));
      if (!disjoint) return false;
    }
    return true;
  }
  QUIRE_ASSIGN_OR_RETURN(const SchemaFacts of_a, FactsOf(document, a, budget));
  QUIRE_ASSIGN_OR_RETURN(const SchemaFacts of_b, FactsOf(document, b, budget));
  for (const auto* side : {&a, &b}) {
    if (!(side == &a ? of_a : of_b).has_values) continue;
    const Json* source = nullptr;
    for (const Json* value : Values(*side, &source)) {
      QUIRE_ASSIGN_OR_RETURN(const bool in_a, Fulfils(document, *value, a, source, budget));
      QUIRE_ASSIGN_OR_RETURN(const bool in_b, Fulfils(document, *value, b, source, budget));
      if (in_a && in_b) return false;
    }
    return true;
  }
  const uint32_t common = of_a.types & of_b.types;
  if ((common & (kNull | kBoolean)) != 0) return false;
  if ((common & (kInteger | kFraction)) != 0) {
    const auto [low_a, high_a] = Interval(of_a.number);
    const auto [low_b, high_b] = Interval(of_b.number);
    if (low_a <= high_b && low_b <= high_a) return false;
  }
  if ((common & kString) != 0) {
    if (of_a.string.is_free() || of_b.string.is_free()) return false;
    QUIRE_ASSIGN_OR_RETURN(const CharDfa strings_a, StringDfa(of_a.string, budget));
    QUIRE_ASSIGN_OR_RETURN(const CharDfa strings_b, StringDfa(of_b.string, budget));
    QUIRE_ASSIGN_OR_RETURN(const CharDfa both, CharDfa::Intersection(strings_a, strings_b, budget));
    if (!both.IsEmpty()) return false;
  }
  if ((common & kArray) != 0) {
    const ArrayDemand &x = of_a.array, &y = of_b.array;
    const bool apart = (x.max_items && *x.max_items < y.min_items) || (y.max_items && *y.max_items < x.min_items);
    if (!apart) return false;
  }
  if ((common & kObject) != 0) {
    QUIRE_ASSIGN_OR_RETURN(const bool disjoint, AreObjectsDisjoint(document, a, of_a, b, of_b, budget, depth));
    if (!disjoint) return false;
  }
  return true;
}

}  // namespace quire::constraint
