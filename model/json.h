#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

// JSON from outside: strict, with every refusal a status.
namespace quire {

// Parses `text`, one JSON value. Refused beside what JSON forbids: text that is not UTF-8, a key twice in one object,
// more than 64 levels, numbers beyond double, more than 2,000,000 values (few bytes of text become many of memory).
// kInvalidArgument beginning with `where` (a file's path).
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& where);

// The same for a file that must hold one object. kNotFound.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path);

// Checked access to the keys of one object, which must outlive it. A null value counts as absent. Errors name file,
// key, value and what is allowed.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  bool Has(const char* key) const { return Find(key) != nullptr; }
  const nlohmann::json* Find(const char* key) const;  // null if absent
  bool IsNull(const char* key) const;                 // there, and null

  // kInvalidArgument if absent, of another type or out of [min, max].
  absl::StatusOr<int64_t> Int(const char* key, int64_t min, int64_t max) const;
  absl::StatusOr<double> Float(const char* key, double min, double max) const;
  absl::StatusOr<bool> Bool(const char* key) const;
  absl::StatusOr<std::string> String(const char* key) const;
  // With a value for absent keys.
  absl::StatusOr<int64_t> IntOr(const char* key, int64_t absent, int64_t min, int64_t max) const;
  absl::StatusOr<double> FloatOr(const char* key, double absent, double min, double max) const;
  absl::StatusOr<bool> BoolOr(const char* key, bool absent) const;
  absl::StatusOr<std::optional<double>> OptionalFloat(const char* key, double min, double max) const;

  // "<where>: <key> is <value>, <what>".
  absl::Status Error(const char* key, std::string_view what) const;

 private:
  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace quire
