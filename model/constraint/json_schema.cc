// A JSON schema as rules of a network: one rule for each set of demands that some value must fulfil.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/compile_util.h"
#include "model/constraint/schema_facts.h"

namespace quire::constraint {
namespace {

constexpr size_t kMaxPatterns = 4;  // of patternProperties for one object: each doubles the kinds of keys

std::string Dump(const Json& value) { return value.dump(-1, ' ', /*ensure_ascii=*/false); }

class SchemaCompiler {
 public:
  SchemaCompiler(SchemaDocument* document, SchemaForm form, JsonWhitespace whitespace, NetworkBuilder* builder)
      : document_(document),
        form_(form),
        is_python_(form == SchemaForm::kPythonArguments),
        has_space_(whitespace == JsonWhitespace::kFree),
        builder_(builder) {}

  // Returns the rule of the whole document.
  absl::StatusOr<int32_t> Compile() {
    free_char_ = builder_->DeclareRule();
    if (is_python_) {
      // The same escapes as in JSON's canonical strings; others of JSON's mean something else there.
      QUIRE_RETURN_IF_ERROR(builder_->DefineRule(free_char_, Expression::Chars(CharSet::All()), Encoding::kJson));
    } else {
      QUIRE_RETURN_IF_ERROR(DefineFreeJsonChar(free_char_, builder_));
    }
    Demands root;
    QUIRE_RETURN_IF_ERROR(AddDemand(document_, document_->root(), &root));
    const int32_t rule = RuleFor(root, form_);
    while (!open_.empty()) {
      const auto [demands, form, next] = std::move(open_.front());
      open_.pop_front();
      QUIRE_RETURN_IF_ERROR(builder_->budget().SpendSteps(10));
      QUIRE_ASSIGN_OR_RETURN(const int32_t start, builder_->AddState());
      QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder_->AddState());
      builder_->DefineRule(next, start, end);
      QUIRE_RETURN_IF_ERROR(AddValue(demands, form, start, end));
    }
    return rule;
  }

 private:
  // Only the whole document has another form than kJson, which is that of values in Python too.
  int32_t RuleFor(const Demands& demands, SchemaForm form = SchemaForm::kJson) {
    const auto [it, is_new] = rules_.try_emplace({demands, form}, 0);
    if (is_new) {
      it->second = builder_->DeclareRule();
      open_.push_back({demands, form, it->second});
    }
    return it->second;
  }

  absl::Status AddValue(const Demands& demands, SchemaForm form, int32_t from, int32_t to) {
    bool one_of = false;
    if (const Demand* choice = FindChoice(demands, &one_of)) {
      return AddChoice(demands, *choice, one_of, form, from, to);
    }
    QUIRE_ASSIGN_OR_RETURN(const SchemaFacts facts, FactsOf(document_, demands, &builder_->budget()));
    if (facts.has_values) return AddValues(demands, form, from, to);
    if (form != SchemaForm::kJson) {
      return (facts.types & kObject) != 0 ? AddObject(demands, facts.object, form, from, to) : absl::OkStatus();
    }
    if ((facts.types & kNull) != 0) QUIRE_RETURN_IF_ERROR(builder_->AddText(from, Scalar(nullptr), to));
    if ((facts.types & kBoolean) != 0) {
      QUIRE_RETURN_IF_ERROR(builder_->AddTexts(from, {Scalar(false), Scalar(true)}, to));
    }
    if ((facts.types & (kInteger | kFraction)) != 0) {
      QUIRE_RETURN_IF_ERROR(AddNumber(facts.number, from, to, builder_));
    }
    if ((facts.types & kString) != 0) QUIRE_RETURN_IF_ERROR(AddString(facts.string, free_char_, from, to, builder_));
    if ((facts.types & kArray) != 0) QUIRE_RETURN_IF_ERROR(AddArray(facts.array, from, to));
    if ((facts.types & kObject) != 0) {
      QUIRE_RETURN_IF_ERROR(AddObject(demands, facts.object, form, from, to));
    }
    return absl::OkStatus();
  }

  absl::Status AddChoice(const Demands& demands, const Demand& choice, bool one_of, SchemaForm form, int32_t from,
                         int32_t to) {
    const size_t num_branches = (*choice.schema)[one_of ? "oneOf" : "anyOf"].size();
    std::vector<Demands> branches(num_branches);
    for (size_t i = 0; i < num_branches; ++i) {
      QUIRE_ASSIGN_OR_RETURN(branches[i], WithBranch(document_, demands, choice, one_of, i));
      // Demands take as much memory as states; choices multiply them.
      QUIRE_RETURN_IF_ERROR(builder_->budget().SpendStates(static_cast<int64_t>(demands.size())));
      for (size_t j = 0; one_of && j < i; ++j) {
        QUIRE_ASSIGN_OR_RETURN(const bool disjoint,
                               AreDisjoint(document_, branches[j], branches[i], &builder_->budget()));
        if (!disjoint) {
          return absl::InvalidArgumentError(
              absl::StrCat("schema: keyword 'oneOf': a value may fulfil both of branches ", j, " and ", i,
                           ", which is not supported; use anyOf"));
        }
      }
      builder_->AddRule(from, RuleFor(branches[i], form), to);
    }
    return absl::OkStatus();
  }

  absl::Status AddValues(const Demands& demands, SchemaForm form, int32_t from, int32_t to) {
    if (form == SchemaForm::kPythonArguments) {
      return absl::InvalidArgumentError("schema: keywords 'const' and 'enum' are not supported for all arguments");
    }
    std::vector<std::string> texts;
    const Json* source = nullptr;
    for (const Json* value : Values(demands, &source)) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, Fulfils(document_, *value, demands, source, &builder_->budget()));
      if (!fits || (form == SchemaForm::kJsonObject && !value->is_object())) continue;
      if (value->is_structured()) {
        QUIRE_ASSIGN_OR_RETURN(const Expression expression, Written(*value));
        QUIRE_RETURN_IF_ERROR(builder_->AddExpression(from, expression, Encoding::kUtf8, to));
        continue;
      }
      texts.push_back(Scalar(*value));
      // The same number as an integer.
      std::string& text = texts.back();
      if (value->is_number_float() && text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0) {
        texts.push_back(text.substr(0, text.size() - 2));
      }
    }
    return texts.empty() ? absl::OkStatus() : builder_->AddTexts(from, std::move(texts), to);
  }

  std::string Scalar(const Json& value) const {
    if (is_python_ && value.is_null()) return "None";
    if (is_python_ && value.is_boolean()) return value.get<bool>() ? "True" : "False";
    return Dump(value);
  }

  // A value, white space between its tokens.
  absl::StatusOr<Expression> Written(const Json& value) {
    QUIRE_RETURN_IF_ERROR(builder_->budget().SpendSteps(1));
    if (!value.is_structured()) return Expression::Text(Scalar(value));
    std::vector<Expression> parts;
    parts.push_back(Expression::Text(value.is_array() ? "[" : "{"));
    bool is_first = true;
    for (const auto& item : value.items()) {
      parts.push_back(Space());
      if (!is_first) {
        parts.push_back(Expression::Text(","));
        parts.push_back(Space());
      }
      is_first = false;
      if (value.is_object()) {
        parts.push_back(Expression::Text(Dump(item.key())));
        parts.push_back(Space());
        parts.push_back(Expression::Text(":"));
        parts.push_back(Space());
      }
      QUIRE_ASSIGN_OR_RETURN(Expression inner, Written(item.value()));
      parts.push_back(std::move(inner));
    }
    parts.push_back(Space());
    parts.push_back(Expression::Text(value.is_array() ? "]" : "}"));
    return Expression::Concat(std::move(parts));
  }

  Expression Space() const {
    if (!has_space_) return Expression::Text("");
    return Expression::Repeat(Expression::Chars(CharSet({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}})), 0,
                              Expression::kUnlimited);
  }

  // White space, `mark`, white space.
  absl::Status AddMark(int32_t from, bool before, const char* mark, bool after, int32_t to) {
    std::vector<Expression> parts;
    if (before) parts.push_back(Space());
    parts.push_back(Expression::Text(mark));
    if (after) parts.push_back(Space());
    return builder_->AddExpression(from, Expression::Concat(std::move(parts)), Encoding::kUtf8, to);
  }

  absl::Status AddArray(const ArrayDemand& demand, int32_t from, int32_t to) {
    if (demand.max_items && *demand.max_items < demand.min_items) return absl::OkStatus();  // no array
    // Counted up to here; then either the end or a loop.
    const int64_t counted =
        demand.max_items.value_or(std::max<int64_t>({1, demand.min_items, static_cast<int64_t>(demand.prefix.size())}));
    QUIRE_RETURN_IF_ERROR(builder_->budget().SpendStates(counted));
    QUIRE_ASSIGN_OR_RETURN(int32_t next_item, builder_->AddState());  // an item begins here
    QUIRE_RETURN_IF_ERROR(AddMark(from, false, "[", true, next_item));
    if (demand.min_items == 0) QUIRE_RETURN_IF_ERROR(AddMark(next_item, false, "]", false, to));
    for (int64_t i = 0; i < counted; ++i) {
      const auto index = static_cast<size_t>(i);
      QUIRE_ASSIGN_OR_RETURN(const int32_t after_item, builder_->AddState());
      builder_->AddRule(next_item, RuleFor(index < demand.prefix.size() ? demand.prefix[index] : demand.rest),
                        after_item);
      if (i + 1 >= demand.min_items) QUIRE_RETURN_IF_ERROR(AddMark(after_item, true, "]", false, to));
      if (i + 1 == counted && demand.max_items) break;
      QUIRE_ASSIGN_OR_RETURN(next_item, builder_->AddState());
      QUIRE_RETURN_IF_ERROR(AddMark(after_item, true, ",", true, next_item));
      if (i + 1 == counted) builder_->AddRule(next_item, RuleFor(demand.rest), after_item);
    }
    return absl::OkStatus();
  }

  // Places in an object: before property `index`, after `count` ones, as far as it matters. `before_key` states stand
  // behind the comma, if there is one.
  struct Places {
    std::map<std::pair<size_t, int64_t>, int32_t> after, before_key;
  };

  absl::Status AddObject(const Demands& demands, const ObjectDemand& demand, SchemaForm form, int32_t from,
                         int32_t to) {
    const auto& properties = demand.properties;
    const int64_t max = demand.max_properties.value_or(std::max<int64_t>(1, demand.min_properties));
    if (max < demand.min_properties) return absl::OkStatus();  // no object
    QUIRE_RETURN_IF_ERROR(builder_->budget().SpendStates(max * static_cast<int64_t>(properties.size() + 1)));
    const bool is_call = form == SchemaForm::kPythonArguments;
    std::vector<int32_t> pairs;
    for (const ObjectDemand::Property& property : properties) {
      QUIRE_ASSIGN_OR_RETURN(const int32_t pair, is_call ? ArgumentRule(property) : PropertyRule(property));
      pairs.push_back(pair);
    }
    const int32_t others = builder_->DeclareRule();
    if (!is_call) QUIRE_RETURN_IF_ERROR(DefineOtherPairs(demands, demand, others));

    Places places;
    const auto state = [&](std::map<std::pair<size_t, int64_t>, int32_t>* states, size_t index,
                           int64_t count) -> absl::StatusOr<int32_t> {
      const auto [it, is_new] = states->try_emplace({index, count}, 0);
      if (is_new) {
        QUIRE_ASSIGN_OR_RETURN(it->second, builder_->AddState());
      }
      return it->second;
    };
    QUIRE_ASSIGN_OR_RETURN(const int32_t begin, state(&places.after, 0, 0));
    QUIRE_RETURN_IF_ERROR(AddMark(from, false, is_call ? "" : "{", !is_call, begin));
    for (size_t i = 0; i <= properties.size(); ++i) {
      for (int64_t count = 0; count <= max; ++count) {
        const auto here = places.after.find({i, count});
        if (here == places.after.end()) continue;
        const int32_t at = here->second;
        const bool is_rest = i == properties.size();
        if (is_rest && count >= demand.min_properties) {
          QUIRE_RETURN_IF_ERROR(AddMark(at, count > 0 && !is_call, is_call ? "" : "}", false, to));
        }
        if (!is_rest && !properties[i].is_required) {
          QUIRE_ASSIGN_OR_RETURN(const int32_t skipped, state(&places.after, i + 1, count));
          builder_->AddEpsilon(at, skipped);
        }
        if (count == max && demand.max_properties) continue;
        const int64_t after_count = std::min(count + 1, max);
        const bool is_new = places.before_key.find({i, after_count}) == places.before_key.end();
        QUIRE_ASSIGN_OR_RETURN(const int32_t key, state(&places.before_key, i, after_count));
        if (count == 0) {
          builder_->AddEpsilon(at, key);
        } else {
          QUIRE_RETURN_IF_ERROR(AddMark(at, !is_call, is_call ? ", " : ",", !is_call, key));
        }
        QUIRE_ASSIGN_OR_RETURN(const int32_t after, state(&places.after, is_rest ? i : i + 1, after_count));
        if (is_new) builder_->AddRule(key, is_rest ? others : pairs[i], after);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> PropertyRule(const ObjectDemand::Property& property) {
    const int32_t rule = builder_->DeclareRule();
    std::vector<Expression> parts;
    parts.push_back(Expression::Text(Dump(Json(property.name))));
    parts.push_back(Space());
    parts.push_back(Expression::Text(":"));
    parts.push_back(Space());
    parts.push_back(Expression::Rule(RuleFor(property.value)));
    QUIRE_RETURN_IF_ERROR(builder_->DefineRule(rule, Expression::Concat(std::move(parts))));
    return rule;
  }

  // Matches nothing where the name cannot be written.
  absl::StatusOr<int32_t> ArgumentRule(const ObjectDemand::Property& property) {
    const int32_t rule = builder_->DeclareRule();
    const bool is_name = !property.name.empty() && std::all_of(property.name.begin(), property.name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    });
    if (is_name) {
      QUIRE_RETURN_IF_ERROR(builder_->DefineRule(
          rule,
          Expression::Concat({Expression::Text(property.name + "="), Expression::Rule(RuleFor(property.value))})));
    } else if (property.is_required) {
      return absl::InvalidArgumentError(
          absl::StrCat("schema: keyword 'required': '", property.name, "' is no name that an argument may have"));
    }
    return rule;
  }

  // A key that is none of the properties, and its value.
  absl::Status DefineOtherPairs(const Demands& demands, const ObjectDemand& demand, int32_t rule) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t start, builder_->AddState());
    QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder_->AddState());
    builder_->DefineRule(rule, start, end);
    if (demand.patterns.size() > kMaxPatterns) {
      return absl::InvalidArgumentError(absl::StrCat("schema: keyword 'patternProperties' with more than ",
                                                     kMaxPatterns, " patterns is not supported"));
    }
    for (uint32_t subset = 0; subset < 1u << demand.patterns.size(); ++subset) {
      std::vector<std::string> matched;
      for (size_t i = 0; i < demand.patterns.size(); ++i) {
        if ((subset >> i & 1) != 0) matched.push_back(demand.patterns[i]);
      }
      QUIRE_ASSIGN_OR_RETURN(const Demands value, UnknownKeyDemands(document_, demands, matched));
      const bool allows_nothing =
          std::any_of(value.begin(), value.end(), [](const Demand& d) { return !d.schema->is_object(); });
      if (allows_nothing) continue;
      QUIRE_ASSIGN_OR_RETURN(const int32_t after_key, builder_->AddState());
      QUIRE_RETURN_IF_ERROR(AddOtherKeys(demand, matched, start, after_key));
      QUIRE_ASSIGN_OR_RETURN(const int32_t before_value, builder_->AddState());
      QUIRE_RETURN_IF_ERROR(AddMark(after_key, true, ":", true, before_value));
      builder_->AddRule(before_value, RuleFor(value), end);
    }
    return absl::OkStatus();
  }

  // Keys that match exactly `matched` of the patterns and are no property.
  absl::Status AddOtherKeys(const ObjectDemand& demand, const std::vector<std::string>& matched, int32_t from,
                            int32_t to) {
    if (demand.patterns.empty() && demand.properties.empty()) {
      return AddString(StringDemand(), free_char_, from, to, builder_);
    }
    Budget* budget = &builder_->budget();
    std::vector<Expression> names;
    for (const ObjectDemand::Property& property : demand.properties) names.push_back(Expression::Text(property.name));
    QUIRE_ASSIGN_OR_RETURN(const CharNfa known,
                           CharNfa::Create(Expression::Choice(std::move(names)), CharNfa::Match::kWhole, budget));
    QUIRE_ASSIGN_OR_RETURN(CharDfa keys, CharDfa::Create(known, budget));
    keys = keys.Complement();
    for (const std::string& pattern : demand.patterns) {
      StringDemand of_key;
      of_key.patterns = {pattern};
      QUIRE_ASSIGN_OR_RETURN(CharDfa matching, StringDfa(of_key, budget));
      if (std::find(matched.begin(), matched.end(), pattern) == matched.end()) matching = matching.Complement();
      QUIRE_ASSIGN_OR_RETURN(keys, CharDfa::Intersection(keys, matching, budget));
    }
    QUIRE_ASSIGN_OR_RETURN(const int32_t begin, builder_->AddState());
    QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder_->AddState());
    builder_->AddBytes(from, '"', '"', begin);
    builder_->AddBytes(end, '"', '"', to);
    return keys.AddTo(begin, Encoding::kJson, end, builder_);
  }

  SchemaDocument* document_;
  const SchemaForm form_;
  const bool is_python_, has_space_;
  NetworkBuilder* builder_;
  int32_t free_char_ = 0;
  absl::flat_hash_map<std::pair<Demands, SchemaForm>, int32_t> rules_;
  std::deque<std::tuple<Demands, SchemaForm, int32_t>> open_;  // rules to define
};

}  // namespace

absl::StatusOr<int32_t> AddSchema(SchemaDocument* document, SchemaForm form, JsonWhitespace whitespace,
                                  NetworkBuilder* builder) {
  return SchemaCompiler(document, form, whitespace, builder).Compile();
}

ConstraintOr CompileJsonSchema(std::string_view schema, JsonWhitespace whitespace,
                               std::shared_ptr<const TokenVocabulary> vocabulary, const ConstraintLimits& limits,
                               Reasoning reasoning) {
  QUIRE_RETURN_IF_ERROR(CheckSource("schema", schema, limits));
  QUIRE_ASSIGN_OR_RETURN(const auto document, SchemaDocument::Parse(schema, limits));
  Budget budget(limits);
  NetworkBuilder builder(&budget);
  QUIRE_ASSIGN_OR_RETURN(const int32_t root, AddSchema(document.get(), SchemaForm::kJson, whitespace, &builder));
  return FinishConstraint(&builder, root, std::move(vocabulary), limits, reasoning);
}

ConstraintOr CompileJsonObject(JsonWhitespace whitespace, std::shared_ptr<const TokenVocabulary> vocabulary,
                               const ConstraintLimits& limits, Reasoning reasoning) {
  return CompileJsonSchema(R"({"type":"object"})", whitespace, std::move(vocabulary), limits, reasoning);
}

}  // namespace quire::constraint
