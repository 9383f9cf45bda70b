#include "server/frontend/field_checks.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"
#include "server/frontend/errors.h"

namespace quire {

absl::Status CheckInt(const std::string& field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(value, " is out of range; must be in [", min, ", ", max, "]"));
}

absl::Status CheckFloat(const std::string& field, float value, FloatRange range) {
  const bool above = range.min_is_open ? value > range.min : value >= range.min;
  if (above && value <= range.max && std::isfinite(value)) return absl::OkStatus();
  const std::string limit = std::isfinite(range.max)
                                ? absl::StrCat("in ", range.min_is_open ? "(" : "[", range.min, ", ", range.max, "]")
                                : absl::StrCat("finite and at least ", range.min);
  return InvalidField(field, absl::StrCat(value, " is out of range; must be ", limit));
}

absl::Status CheckBytes(const std::string& field, const std::string& text, int64_t max) {
  if (static_cast<int64_t>(text.size()) > max)
    return InvalidField(field, absl::StrCat(text.size(), " bytes are too long; at most ", max));
  if (!utf8::IsValid(text)) return InvalidField(field, "not valid UTF-8");
  return absl::OkStatus();
}

absl::Status CheckName(const std::string& field, const std::string& name, int64_t max) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::any_of(name.begin(), name.end(), is_control)) return InvalidField(field, "has a control character");
  return CheckBytes(field, name, max);
}

}  // namespace quire
