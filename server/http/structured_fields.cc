#include "server/http/structured_fields.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;

// `name` stands in `fields`, whose names begin with `prefix`.
void Choose(JsonFields& fields, const char* prefix, const char* name, Kind kind, std::string source,
            StructuredOutput* out) {
  if (out->kind != Kind::kFree)
    return fields.Refuse(name, absl::StrCat("goes with ", out->field, "; give one of them"));
  out->kind = kind;
  out->source = std::move(source);
  out->field = absl::StrCat(prefix, name);
}

void ReadSchema(JsonFields& fields, const char* prefix, const char* name, StructuredOutput* out) {
  const Json* const schema = fields.Get(name);
  if (schema == nullptr) return;
  if (schema->is_string()) {
    Choose(fields, prefix, name, Kind::kJsonSchema, schema->get<std::string>(), out);
  } else if (schema->is_object() || schema->is_boolean()) {
    Choose(fields, prefix, name, Kind::kJsonSchema, schema->dump(), out);
  } else {
    fields.Refuse(name, absl::StrCat("must be a JSON schema, not ", schema->type_name()));
  }
}

void ReadJsonObject(JsonFields& fields, const char* prefix, StructuredOutput* out) {
  if (fields.Bool("json_object").value_or(false)) Choose(fields, prefix, "json_object", Kind::kJsonObject, "", out);
}

void ReadText(JsonFields& fields, const char* prefix, const char* name, Kind kind, StructuredOutput* out) {
  if (std::optional<std::string> text = fields.String(name)) Choose(fields, prefix, name, kind, *std::move(text), out);
}

void ReadResponseFormat(JsonFields& fields, StructuredOutput* out) {
  constexpr char kPrefix[] = "response_format.", kSchemaPrefix[] = "response_format.json_schema.";
  const std::string type = fields.String("type").value_or("");
  if (type == "json_object") {
    Choose(fields, kPrefix, "type", Kind::kJsonObject, "", out);
  } else if (type == "json_schema") {
    const Json* const named = fields.Get("json_schema");
    if (named == nullptr || !named->is_object()) {
      return fields.Refuse("json_schema", "must be an object that holds the schema");
    }
    JsonFields inner(*named, kSchemaPrefix);
    inner.String("name");
    inner.Bool("strict");  // true or not: what is asked for is what comes
    if (inner.Get("schema") == nullptr) inner.Refuse("schema", "is missing");
    ReadSchema(inner, kSchemaPrefix, "schema", out);
    fields.Fail(inner.status());
  } else if (type != "text") {
    fields.Refuse("type", absl::StrCat(type.empty() ? "is missing" : Quoted(type) + " is not supported",
                                       "; must be text, json_object or json_schema"));
  }
}

void ReadStructuredOutputs(JsonFields& fields, StructuredOutput* out) {
  constexpr char kPrefix[] = "structured_outputs.";
  ReadSchema(fields, kPrefix, "json", out);
  ReadJsonObject(fields, kPrefix, out);
  ReadText(fields, kPrefix, "regex", Kind::kRegex, out);
  ReadText(fields, kPrefix, "grammar", Kind::kGrammar, out);
  if (fields.Get("choice") != nullptr) {
    Choose(fields, kPrefix, "choice", Kind::kChoices, "", out);
    out->choices = fields.Strings("choice");
  }
  out->compact_json = fields.Bool("disable_any_whitespace").value_or(false);
  for (const char* const name : {"structural_tag", "whitespace_pattern"}) {
    if (fields.Get(name) != nullptr) fields.Refuse(name, "is not supported; leave it out");
  }
  if (fields.Bool("disable_additional_properties").value_or(false)) {
    fields.Refuse("disable_additional_properties", "is not supported; say additionalProperties in the schema");
  }
  // A misspelt constraint must not let everything through.
  const std::vector<std::string> unknown = fields.Unasked();
  if (out->kind == Kind::kFree && !unknown.empty())
    fields.Refuse(unknown.front().c_str(), "is not known; must be json, json_object, regex, choice or grammar");
}

}  // namespace

void ReadStructuredOutput(JsonFields& fields, StructuredOutput* out) {
  const auto object = [&](const char* name) -> const Json* {
    const Json* const value = fields.Get(name);
    if (value == nullptr || value->is_object()) return value;
    fields.Refuse(name, absl::StrCat("must be an object, not ", value->type_name()));
    return nullptr;
  };
  if (const Json* const format = object("response_format")) {
    JsonFields inner(*format, "response_format.");
    ReadResponseFormat(inner, out);
    fields.Fail(inner.status());
  }
  if (const Json* const outputs = object("structured_outputs")) {
    JsonFields inner(*outputs, "structured_outputs.");
    ReadStructuredOutputs(inner, out);
    fields.Fail(inner.status());
  }
}

}  // namespace quire
