#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/json_shape.h"
#include "nlohmann/json.hpp"

namespace quire {

// JSON that a client or a model has written into a text, keys in their order. Discarded if it is none, and if it nests
// deeper than 500 levels or has objects of so many members that it would take long.
inline nlohmann::ordered_json ParseBoundedJson(std::string_view text) {
  constexpr int64_t kMaxDepth = 500;  // as values of templates
  const JsonShape shape = ShapeOfJson(text, kMaxDepth);
  if (shape.depth > kMaxDepth || shape.pairs > kMaxJsonPairs) return nlohmann::ordered_json::value_t::discarded;
  return nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace quire
