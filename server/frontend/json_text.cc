#include "server/frontend/json_text.h"

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int64_t kMaxDepth = 100, kMaxValues = 4 << 20;
// The library looks for every name among those before it, and so does who copies an object.
constexpr int64_t kMaxPairs = 8 << 20;

// Of text that is JSON; of other text anything.
absl::Status CheckShape(const std::string& text) {
  int64_t depth = 0, values = 1, pairs = 0;
  std::array<int64_t, kMaxDepth + 1> members = {};  // so far, of the object at each depth
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
      members[depth] = 0;
    } else if (c == ']' || c == '}') {
      if (--depth < 0) return absl::OkStatus();  // the parser stops here
    } else if (c == ',' && ++values > kMaxValues) {
      return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxValues, " values"));
    } else if (c == ':' && (pairs += members[depth]++) > kMaxPairs) {
      return absl::InvalidArgumentError(
          absl::StrCat("has objects of too many members: more than ", kMaxPairs, " pairs of members of one object"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJsonText(const std::string& text) {
  if (const absl::Status shape = CheckShape(text); !shape.ok()) return shape;
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  // The library takes a zero byte for the end of the text.
  if (parsed.is_discarded() || text.find('\0') != std::string::npos)
    return absl::InvalidArgumentError("is not JSON in UTF-8, or has a number that is too large");
  return parsed;
}

}  // namespace quire
