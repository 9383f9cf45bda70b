#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

using Json = nlohmann::ordered_json;

// The JSON object of a request body. kInvalidArgument for bytes that are none and for what ParseJsonText refuses.
absl::StatusOr<Json> ParseBody(const std::string& body);

// Reads the optional fields of an object: null is the same as absent, a value of another type is an error naming the
// field. The first error stays and everything read after it is absent: ask for it once, at the end.
class JsonFields {
 public:
  // `object` outlives this; `prefix` stands before names in errors, "stream_options.".
  explicit JsonFields(const Json& object, std::string prefix = "");

  // Null if absent. Names outlive this.
  const Json* Get(const char* name);
  std::optional<bool> Bool(const char* name);
  std::optional<int64_t> Int(const char* name);   // 3.0 is 3
  std::optional<float> Number(const char* name);  // finite
  std::optional<std::string> String(const char* name);
  std::vector<std::string> Strings(const char* name);  // one string is a list of one
  std::vector<int64_t> Ints(const char* name);

  // Refuses a field that is there.
  void Refuse(const char* name, const std::string& problem) { Fail(name, problem); }
  // Takes over an error of a nested object.
  void Fail(const absl::Status& nested) { status_.Update(nested); }
  const absl::Status& status() const { return status_; }
  // Names of members that nothing was asked of.
  std::vector<std::string> Unasked() const;

 private:
  void Fail(const std::string& name, const std::string& problem);

  const Json& object_;
  const std::string prefix_;
  absl::Status status_;
  std::vector<std::string_view> asked_;
};

// An integer, also written as 3.0; none if it is not one or does not fit.
std::optional<int64_t> ToInt(const Json& value);

}  // namespace quire
