#include "model/tokenizer/json_fields.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"

namespace quire::json_fields {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

absl::Status Wrong(std::string_view where, const char* key, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(where), where.empty() ? "" : ".", key, " ", what));
}

// Depth of the brackets outside strings, whether or not they match.
bool IsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

absl::StatusOr<const json*> Container(const json& object, std::string_view where, const char* key, bool array) {
  const json* value = Find(object, key);
  if (value == nullptr) return Wrong(where, key, "is missing");
  if (array ? value->is_array() : value->is_object()) return value;
  return Wrong(where, key, array ? "must be an array" : "must be an object");
}

}  // namespace

const json* Find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

absl::StatusOr<bool> Bool(const json& object, std::string_view where, const char* key, bool if_absent) {
  const json* value = Find(object, key);
  if (value == nullptr) return if_absent;
  if (!value->is_boolean()) return Wrong(where, key, "must be a boolean");
  return value->get<bool>();
}

absl::StatusOr<std::string> String(const json& object, std::string_view where, const char* key, const char* if_absent) {
  const json* value = Find(object, key);
  if (value == nullptr) {
    if (if_absent != nullptr) return std::string(if_absent);
    return Wrong(where, key, "is missing");
  }
  if (!value->is_string()) return Wrong(where, key, "must be a string");
  return value->get<std::string>();
}

absl::StatusOr<int64_t> Int(const json& object, std::string_view where, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return Wrong(where, key, "is missing");
  if (!value->is_number_integer()) return Wrong(where, key, "must be an integer");
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(where, key, "is out of range");
  }
  return value->get<int64_t>();
}

absl::StatusOr<const json*> Array(const json& object, std::string_view where, const char* key) {
  return Container(object, where, key, /*array=*/true);
}

absl::StatusOr<const json*> Object(const json& object, std::string_view where, const char* key) {
  return Container(object, where, key, /*array=*/false);
}

absl::StatusOr<json> Parse(std::string_view text) {
  if (IsTooDeep(text)) return absl::InvalidArgumentError(absl::StrCat("JSON is nested deeper than ", kMaxDepth));
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", Printable(error.what())));
  }
}

}  // namespace quire::json_fields
