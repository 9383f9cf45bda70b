#include "server/frontend/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"
#include "scheduler/engine.h"

namespace quire {
namespace {

constexpr char kFieldUrl[] = "quire/field";

}  // namespace

absl::Status InvalidField(const std::string& field, const std::string& problem) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
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
