#include "server/frontend/json_text.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int64_t kMaxDepth = 100, kMaxValues = 4 << 20;

// Of text that is JSON; of other text anything.
absl::Status CheckShape(const std::string& text) {
  int64_t depth = 0, values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMaxDepth)
        return absl::InvalidArgumentError(absl::StrCat("nests deeper than ", kMaxDepth, " levels"));
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && ++values > kMaxValues) {
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxValues, " values"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJsonText(const std::string& text) {
  if (const absl::Status shape = CheckShape(text); !shape.ok()) return shape;
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("is not JSON in UTF-8");
  return parsed;
}

}  // namespace quire
