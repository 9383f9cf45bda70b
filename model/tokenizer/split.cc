#include "model/tokenizer/split.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

struct Part {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Matches and what lies between them, in order.
std::vector<Part> Cover(TextRange span, const std::vector<TextRange>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t from = span.begin;
  for (const TextRange& match : matches) {
    if (from != match.begin) parts.push_back({from, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    from = match.end;
  }
  if (from != span.end) parts.push_back({from, span.end, invert});
  return parts;
}

// Joins each part with the one before it where `joins` says so of (it, the one before).
template <typename Joins>
void JoinWithPrevious(std::vector<Part>* parts, Joins joins) {
  std::vector<Part> joined;
  bool previous_match = false;
  for (const Part& part : *parts) {
    if (!joined.empty() && joins(part.is_match, previous_match)) {
      joined.back().end = part.end;
    } else {
      joined.push_back(part);
    }
    previous_match = part.is_match;
  }
  *parts = std::move(joined);
}

void JoinWithNext(std::vector<Part>* parts) {
  std::vector<Part> joined;
  bool previous_match = false;
  for (auto part = parts->rbegin(); part != parts->rend(); ++part) {
    if (!joined.empty() && part->is_match && !previous_match) {
      joined.back().begin = part->begin;
    } else {
      joined.push_back(*part);
    }
    previous_match = part->is_match;
  }
  std::reverse(joined.begin(), joined.end());
  *parts = std::move(joined);
}

// Without joining there is nothing to remember.
void CutIsolated(TextRange span, const std::vector<TextRange>& matches, std::vector<TextRange>* pieces) {
  size_t from = span.begin;
  for (const TextRange& match : matches) {
    if (from != match.begin) pieces->push_back({from, match.begin});
    if (match.begin != match.end) pieces->push_back(match);
    from = match.end;
  }
  if (from != span.end) pieces->push_back({from, span.end});
}

}  // namespace

void CutAtMatches(TextRange span, const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                  std::vector<TextRange>* pieces) {
  if (behavior == SplitBehavior::kIsolated) return CutIsolated(span, matches, pieces);
  std::vector<Part> parts = Cover(span, matches, invert);
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.is_match; });
      break;
    case SplitBehavior::kMergedWithPrevious:
      JoinWithPrevious(&parts, [](bool is_match, bool previous) { return is_match && !previous; });
      break;
    case SplitBehavior::kMergedWithNext:
      JoinWithNext(&parts);
      break;
    case SplitBehavior::kContiguous:
      JoinWithPrevious(&parts, [](bool is_match, bool previous) { return is_match == previous; });
      break;
  }
  for (const Part& part : parts) {
    if (part.begin != part.end) pieces->push_back({part.begin, part.end});
  }
}

}  // namespace quire
