#include "server/http/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/frontend/errors.h"
#include "server/frontend/json_text.h"

namespace quire {

absl::StatusOr<Json> ParseBody(const std::string& body) {
  absl::StatusOr<Json> parsed = ParseJsonText(body);
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat("the body ", std::string(parsed.status().message())));
  if (!parsed->is_object())
    return absl::InvalidArgumentError(absl::StrCat("the body must be a JSON object, not ", parsed->type_name()));
  return parsed;
}

std::optional<int64_t> ToInt(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

JsonFields::JsonFields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

void JsonFields::Fail(const std::string& name, const std::string& problem) {
  if (status_.ok()) status_ = InvalidField(prefix_ + name, problem);
}

std::vector<std::string> JsonFields::Unasked() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) names.push_back(name);
  }
  return names;
}

const Json* JsonFields::Get(const char* name) {
  asked_.emplace_back(name);
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> JsonFields::Bool(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, absl::StrCat("must be true or false, not ", value->type_name()));
  return std::nullopt;
}

std::optional<int64_t> JsonFields::Int(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = ToInt(*value);
  if (!number)
    Fail(name, absl::StrCat("must be an integer of 64 bits, not ",
                            value->is_number() ? value->dump() : std::string(value->type_name())));
  return number;
}

std::optional<float> JsonFields::Number(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto number = static_cast<float>(value->get<double>());
    if (std::isfinite(number)) return number;
  }
  Fail(name, absl::StrCat("must be a finite number, not ",
                          value->is_number() ? value->dump() : std::string(value->type_name())));
  return std::nullopt;
}

std::optional<std::string> JsonFields::String(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, absl::StrCat("must be a string, not ", value->type_name()));
  return std::nullopt;
}

std::vector<std::string> JsonFields::Strings(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const auto is_string = [](const Json& item) { return item.is_string(); };
  if (value->is_array() && std::all_of(value->begin(), value->end(), is_string))
    return value->get<std::vector<std::string>>();
  Fail(name, "must be a string or a list of strings");
  return {};
}

std::vector<int64_t> JsonFields::Ints(const char* name) {
  const Json* const value = Get(name);
  if (value == nullptr) return {};
  std::vector<int64_t> numbers;
  for (const Json& item : value->is_array() ? *value : Json()) {
    const std::optional<int64_t> number = ToInt(item);
    if (!number) break;
    numbers.push_back(*number);
  }
  if (!value->is_array() || numbers.size() != value->size()) {
    Fail(name, "must be a list of integers");
    return {};
  }
  return numbers;
}

}  // namespace quire
