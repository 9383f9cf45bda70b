#include "server/frontend/json_text.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/json_shape.h"

namespace quire {
namespace {

constexpr int64_t kMaxDepth = 100, kMaxValues = 4 << 20;

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJsonText(const std::string& text) {
  const JsonShape shape = ShapeOfJson(text, kMaxDepth);
  if (shape.depth > kMaxDepth)
    return absl::InvalidArgumentError(absl::StrCat("nests deeper than ", kMaxDepth, " levels"));
  if (shape.values > kMaxValues)
    return absl::InvalidArgumentError(absl::StrCat("has more than ", kMaxValues, " values"));
  if (shape.pairs > kMaxJsonPairs)
    return absl::InvalidArgumentError(
        absl::StrCat("has objects of too many members: more than ", kMaxJsonPairs, " pairs of members of one object"));
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  // The library takes a zero byte for the end of the text.
  if (parsed.is_discarded() || text.find('\0') != std::string::npos)
    return absl::InvalidArgumentError("is not JSON in UTF-8, or has a number that is too large");
  return parsed;
}

}  // namespace quire
