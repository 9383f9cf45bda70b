#include "server/cli/tools.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/cli/format.h"

namespace quire::cli {
namespace {

// What is wrong with a text that is no JSON, or not the JSON of a list.
absl::Status ParseList(absl::string_view text, Json* list) {
  try {
    *list = Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: byte ", error.byte, " of ", text.size()));
  }
  if (list->is_array() && !list->empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("must be a JSON list of at least one tool");
}

// A member that is absent is null.
const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

absl::Status Wrong(const std::string& where, const char* must) {
  return absl::InvalidArgumentError(absl::StrCat(where, " must be ", must));
}

absl::Status ReadTool(const std::string& where, const Json& tool, v1::Tool* out) {
  if (!tool.is_object()) return Wrong(where, "an object");
  if (Member(tool, "type") != "function") return Wrong(where + ".type", "\"function\"");
  const Json& function = Member(tool, "function");
  if (!function.is_object()) return Wrong(where + ".function", "an object");
  const Json& name = Member(function, "name");
  if (!name.is_string() || name == "") return Wrong(where + ".function.name", "a string that is not empty");
  const Json& description = Member(function, "description");
  if (!description.is_null() && !description.is_string()) return Wrong(where + ".function.description", "a string");
  const Json& parameters = Member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object())
    return Wrong(where + ".function.parameters", "a JSON Schema, an object");
  out->set_name(name.get<std::string>());
  if (description.is_string()) out->set_description(description.get<std::string>());
  if (parameters.is_object()) out->set_parameters_json(parameters.dump());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<v1::Tool>> ParseTools(absl::string_view json) {
  Json list;
  QUIRE_RETURN_IF_ERROR(ParseList(json, &list));
  std::vector<v1::Tool> tools(list.size());
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = absl::StrCat("tools[", i, "]");
    QUIRE_RETURN_IF_ERROR(ReadTool(where, list[i], &tools[i]));
    if (!names.insert(tools[i].name()).second) return Wrong(where + ".function.name", "another than those before it");
  }
  return tools;
}

}  // namespace quire::cli
