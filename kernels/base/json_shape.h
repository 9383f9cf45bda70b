#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

// What JSON text becomes when it is parsed. Of other text: what a parser reads of it before it stops, at most.
struct JsonShape {
  int64_t depth = 0;   // of brackets within each other; max_depth + 1: more than max_depth, and nothing else counts
  int64_t values = 1;  // at most
  // Pairs of members of one object: nlohmann's ordered objects compare each name with all before it.
  int64_t pairs = 0;
};

// Some ten milliseconds of comparisons: 4,096 members in one object.
inline constexpr int64_t kMaxJsonPairs = 8 << 20;

// Any thread; one pass. max_depth >= 0.
inline JsonShape ShapeOfJson(std::string_view text, int64_t max_depth) {
  JsonShape shape;
  std::vector<int64_t> members(1);  // so far, of the brackets that are open, the outermost first; [0]: outside
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
        break;
      case '[':
      case '{':
        ++shape.values;
        shape.depth = std::max(shape.depth, static_cast<int64_t>(members.size()));
        if (shape.depth > max_depth) return shape;
        members.push_back(0);
        break;
      case ']':
      case '}':
        if (members.size() == 1) return shape;
        members.pop_back();
        break;
      case ',':
        ++shape.values;
        break;
      case ':':
        shape.pairs += members.back()++;
        break;
      default:
        break;
    }
  }
  return shape;
}

}  // namespace quire
