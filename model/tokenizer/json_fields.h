#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

// Reads fields of outside JSON without trusting their types. `where` is the path of `object` in the file, for messages;
// errors are kInvalidArgument naming the field and what is wrong with it.
namespace quire::json_fields {

// A member that is there and not null, else null. `object` may be any value: only objects have members.
const nlohmann::json* Find(const nlohmann::json& object, std::string_view key);

absl::StatusOr<bool> Bool(const nlohmann::json& object, std::string_view where, const char* key, bool if_absent);
absl::StatusOr<std::string> String(const nlohmann::json& object, std::string_view where, const char* key,
                                   const char* if_absent = nullptr);  // null: must be there
absl::StatusOr<int64_t> Int(const nlohmann::json& object, std::string_view where, const char* key);
absl::StatusOr<const nlohmann::json*> Array(const nlohmann::json& object, std::string_view where, const char* key);
absl::StatusOr<const nlohmann::json*> Object(const nlohmann::json& object, std::string_view where, const char* key);

// Parses a whole file's text: kInvalidArgument if it is not JSON, not UTF-8, or nested deeper than 64.
absl::StatusOr<nlohmann::json> Parse(std::string_view text);

}  // namespace quire::json_fields
