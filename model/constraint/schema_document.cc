#include "model/constraint/schema_document.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/json_shape.h"
#include "kernels/base/status_macros.h"

namespace quire::constraint {
namespace {

enum class Shape { kAnything, kSchema, kSchemas, kSchemaMap, kCount, kNumber, kString, kBool, kNames, kValues };

struct Keyword {
  const char* name;
  Shape shape;
};
constexpr Keyword kKeywords[] = {
    {"$ref", Shape::kString},
    {"additionalProperties", Shape::kSchema},
    {"allOf", Shape::kSchemas},
    {"anyOf", Shape::kSchemas},
    {"const", Shape::kAnything},
    {"enum", Shape::kValues},
    {"exclusiveMaximum", Shape::kNumber},
    {"exclusiveMinimum", Shape::kNumber},
    {"format", Shape::kString},
    {"items", Shape::kSchema},
    {"maxItems", Shape::kCount},
    {"maxLength", Shape::kCount},
    {"maxProperties", Shape::kCount},
    {"maximum", Shape::kNumber},
    {"minItems", Shape::kCount},
    {"minLength", Shape::kCount},
    {"minProperties", Shape::kCount},
    {"minimum", Shape::kNumber},
    {"multipleOf", Shape::kNumber},
    {"oneOf", Shape::kSchemas},
    {"pattern", Shape::kString},
    {"patternProperties", Shape::kSchemaMap},
    {"prefixItems", Shape::kSchemas},
    {"properties", Shape::kSchemaMap},
    {"required", Shape::kNames},
    {"uniqueItems", Shape::kBool},
    {"$defs", Shape::kSchemaMap},
    {"definitions", Shape::kSchemaMap},
};

constexpr const char* kRefused[] = {
    "if",
    "then",
    "else",
    "not",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "$dynamicRef",
    "$recursiveRef",
};

constexpr const char* kTypes[] = {"array", "boolean", "integer", "null", "number", "object", "string"};

bool IsSchema(const Json& value) { return value.is_object() || value.is_boolean(); }

absl::Status Wrong(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("schema ", where, ": ", what));
}

bool IsTypeName(const Json& value) {
  return value.is_string() &&
         std::find(std::begin(kTypes), std::end(kTypes), value.get_ref<const std::string&>()) != std::end(kTypes);
}

absl::Status CheckShape(const Json& value, Shape shape, const std::string& where) {
  const auto all = [&](auto is) { return std::all_of(value.begin(), value.end(), is); };
  const auto is_string = [](const Json& v) { return v.is_string(); };
  switch (shape) {
    case Shape::kAnything:
      return absl::OkStatus();
    case Shape::kSchema:
      return IsSchema(value) ? absl::OkStatus() : Wrong(where, "a schema is expected");
    case Shape::kSchemas:
      return value.is_array() && !value.empty() && all(IsSchema) ? absl::OkStatus()
                                                                 : Wrong(where, "an array of schemas is expected");
    case Shape::kSchemaMap:
      return value.is_object() && all(IsSchema) ? absl::OkStatus() : Wrong(where, "an object of schemas is expected");
    case Shape::kCount:
      return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 9e15 &&
                     value.get<double>() == static_cast<double>(static_cast<int64_t>(value.get<double>()))
                 ? absl::OkStatus()
                 : Wrong(where, "a whole number from 0 on is expected");
    case Shape::kNumber:
      return value.is_number() ? absl::OkStatus() : Wrong(where, "a number is expected");
    case Shape::kString:
      return value.is_string() ? absl::OkStatus() : Wrong(where, "a string is expected");
    case Shape::kBool:
      return value.is_boolean() ? absl::OkStatus() : Wrong(where, "true or false is expected");
    case Shape::kNames:
      return value.is_array() && all(is_string) ? absl::OkStatus() : Wrong(where, "an array of strings is expected");
    case Shape::kValues:
      return value.is_array() && !value.empty() ? absl::OkStatus() : Wrong(where, "an array of values is expected");
  }
  return absl::OkStatus();
}

std::string Unescaped(std::string token) {
  std::string result;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '%' && i + 2 < token.size() && absl::ascii_isxdigit(static_cast<unsigned char>(token[i + 1])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(token[i + 2]))) {
      result.push_back(static_cast<char>(std::stoi(token.substr(i + 1, 2), nullptr, 16)));
      i += 2;
    } else if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      result.push_back(token[++i] == '0' ? '~' : '/');
    } else {
      result.push_back(token[i]);
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(std::string_view text,
                                                                      const ConstraintLimits& limits) {
  const JsonShape shape = ShapeOfJson(text, limits.max_depth);
  if (shape.depth > limits.max_depth) {
    return absl::ResourceExhaustedError(absl::StrCat("the schema nests deeper than max_depth = ", limits.max_depth));
  }
  if (shape.pairs > kMaxJsonPairs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the schema has more than ", kMaxJsonPairs, " pairs of members of one object"));
  }
  auto document = std::make_unique<SchemaDocument>();
  document->root_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document->root_.is_discarded()) return absl::InvalidArgumentError("the schema is not valid JSON");
  if (!IsSchema(document->root_)) return Wrong("#", "a schema is an object, true or false");
  QUIRE_RETURN_IF_ERROR(document->Check(document->root_, "#"));
  return document;
}

absl::Status SchemaDocument::Check(const Json& schema, const std::string& where) {
  if (!schema.is_object() || !checked_.insert(&schema).second) return absl::OkStatus();
  for (const auto& [keyword, value] : schema.items()) {
    QUIRE_RETURN_IF_ERROR(CheckKeyword(schema, keyword, value, absl::StrCat(where, "/", keyword)));
  }
  return absl::OkStatus();
}

absl::Status SchemaDocument::CheckKeyword(const Json& schema, const std::string& keyword, const Json& value,
                                          const std::string& where) {
  // Those that say nothing as long as they allow everything.
  if ((keyword == "unevaluatedProperties" || keyword == "unevaluatedItems" || keyword == "propertyNames") &&
      value == true) {
    return absl::OkStatus();
  }
  if (std::find(std::begin(kRefused), std::end(kRefused), keyword) != std::end(kRefused)) {
    return Wrong(where, absl::StrCat("keyword '", keyword, "' is not supported"));
  }
  if (keyword == "type") {
    const bool right = IsTypeName(value) ||
                       (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), IsTypeName));
    return right ? absl::OkStatus() : Wrong(where, "a type's name or an array of them is expected");
  }
  if ((keyword == "$anchor" || keyword == "$id") && value.is_string()) {
    const std::string& name = value.get_ref<const std::string&>();
    anchors_[keyword == "$id" ? name : absl::StrCat("#", name)] = &schema;
    return absl::OkStatus();
  }
  const auto* known =
      std::find_if(std::begin(kKeywords), std::end(kKeywords), [&](const Keyword& k) { return keyword == k.name; });
  if (known == std::end(kKeywords)) return absl::OkStatus();  // an annotation
  if (keyword == "items" && value.is_array()) {
    return Wrong(where, "an array is not supported; prefixItems has replaced it");
  }
  QUIRE_RETURN_IF_ERROR(CheckShape(value, known->shape, where));
  if (keyword == "uniqueItems" && value == true) {
    const auto max = schema.find("maxItems");
    if (max == schema.end() || !max->is_number() || max->get<double>() > 1) {
      return Wrong(where, "keyword 'uniqueItems' is not supported");
    }
  }
  if (keyword == "multipleOf" && value.get<double>() <= 0) return Wrong(where, "a number above 0 is expected");
  if (known->shape == Shape::kSchema) return Check(value, where);
  if (known->shape == Shape::kSchemas) {
    for (size_t i = 0; i < value.size(); ++i) QUIRE_RETURN_IF_ERROR(Check(value[i], absl::StrCat(where, "/", i)));
  }
  if (known->shape == Shape::kSchemaMap) {
    for (const auto& [name, inner] : value.items()) {
      QUIRE_RETURN_IF_ERROR(Check(inner, absl::StrCat(where, "/", name)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const Json*> SchemaDocument::Resolve(const std::string& reference) {
  if (const auto it = anchors_.find(reference); it != anchors_.end()) return it->second;
  const auto missing = [&] {
    return absl::InvalidArgumentError(absl::StrCat("schema: $ref '", reference, "' is not in the schema"));
  };
  size_t hash = reference.find('#');
  if (hash == std::string::npos) return missing();
  if (hash > 0) {
    const auto it = anchors_.find(reference.substr(0, hash));
    if (it == anchors_.end() || it->second != &root_) return missing();
  }
  const Json* node = &root_;
  for (size_t begin = hash + 1; begin < reference.size();) {
    if (reference[begin] != '/') return missing();
    const size_t end = std::min(reference.find('/', begin + 1), reference.size());
    const std::string token = Unescaped(reference.substr(begin + 1, end - begin - 1));
    if (node->is_object()) {
      const auto it = node->find(token);
      if (it == node->end()) return missing();
      node = &*it;
    } else if (node->is_array()) {
      const bool number = !token.empty() && token.size() < 10 &&
                          std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (!number || static_cast<size_t>(std::stoi(token)) >= node->size()) return missing();
      node = &(*node)[static_cast<size_t>(std::stoi(token))];
    } else {
      return missing();
    }
    begin = end;
  }
  if (!IsSchema(*node)) return missing();
  QUIRE_RETURN_IF_ERROR(Check(*node, reference));
  return node;
}

absl::Status AddDemand(SchemaDocument* document, const Json& schema, Demands* demands) {
  std::vector<const Json*> open = {&schema};  // the next one is the last
  while (!open.empty()) {
    const Json* next = open.back();
    open.pop_back();
    if (next->is_boolean() && next->get<bool>()) continue;
    if (next->is_object() && next->empty()) continue;
    if (std::any_of(demands->begin(), demands->end(), [&](const Demand& d) { return d.schema == next; })) continue;
    demands->push_back({next});
    if (!next->is_object()) continue;
    if (const auto all = next->find("allOf"); all != next->end()) {
      for (auto it = all->rbegin(); it != all->rend(); ++it) open.push_back(&*it);
    }
    if (const auto ref = next->find("$ref"); ref != next->end()) {
      QUIRE_ASSIGN_OR_RETURN(const Json* target, document->Resolve(ref->get<std::string>()));
      open.push_back(target);
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::constraint
