#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace quire {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return absl::Hash<std::string_view>{}(text); }
};

struct TextEqual {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return a == b; }
};

// Owns its keys and is asked by std::string_view, which Abseil's own string hash does not take everywhere.
template <typename Value>
using TextMap = absl::flat_hash_map<std::string, Value, TextHash, TextEqual>;

}  // namespace quire
