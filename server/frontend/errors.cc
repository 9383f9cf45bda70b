#include "server/frontend/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"
#include "scheduler/engine.h"

namespace quire {
namespace {

constexpr char kFieldUrl[] = "quire/field";

}  // namespace

absl::Status InvalidField(const std::string& field, const std::string& problem) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(field, ": ", problem)), field);
}

absl::Status WithField(absl::Status status, const std::string& field) {
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

absl::Status RenamedField(const absl::Status& status, const std::string& field, const std::string& other) {
  const std::string prefix = field + ": ";
  const absl::string_view message = status.message();
  if (FieldOf(status) != field || !absl::StartsWith(message, prefix)) return status;
  return InvalidField(other, std::string(message.substr(prefix.size())));
}

std::optional<std::string> FieldOf(const absl::Status& status) {
  const absl::optional<absl::Cord> field = status.GetPayload(kFieldUrl);
  if (!field) return std::nullopt;
  return std::string(*field);
}

std::string Quoted(const std::string& text) {
  if (!utf8::IsValid(text)) return "'?'";
  const std::string beginning = text.substr(0, 256);
  return absl::StrCat("'", beginning.substr(0, utf8::ValidPrefix(beginning)), "'");
}

absl::Status RetryAfter(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryMsPayload, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  return status;
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const absl::optional<absl::Cord> text = status.GetPayload(kRetryMsPayload);
  int64_t ms = 0;
  if (!text || !absl::SimpleAtoi(std::string(*text), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

}  // namespace quire
