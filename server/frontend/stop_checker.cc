#include "server/frontend/stop_checker.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace quire {
namespace {

int32_t TailBytesOf(const std::string& text) {
  size_t first = 1;
  while (first < text.size() && (static_cast<unsigned char>(text[first]) & 0xC0) == 0x80) ++first;
  return static_cast<int32_t>(text.size() - first);
}

}  // namespace

StopStrings::StopStrings(absl::Span<const std::string> stops) {
  patterns_.reserve(stops.size());
  for (const std::string& text : stops) {
    QUIRE_CHECK(!text.empty());
    patterns_.push_back({text, TailBytesOf(text), std::vector<int32_t>(text.size() + 1, 0)});
    std::vector<int32_t>& failure = patterns_.back().failure;
    for (size_t i = 1; i < text.size(); ++i) failure[i + 1] = Advance(size() - 1, failure[i], text[i]);
  }
}

int32_t StopStrings::Advance(int32_t index, int32_t state, char byte) const {
  const Pattern& pattern = patterns_[index];
  if (state == static_cast<int32_t>(pattern.text.size())) state = pattern.failure[state];
  while (state > 0 && pattern.text[state] != byte) state = pattern.failure[state];
  return pattern.text[state] == byte ? state + 1 : 0;
}

StopChecker::StopChecker(const StopStrings& stops, bool include_stop, int32_t min_tokens)
    : stops_(&stops), include_stop_(include_stop), min_tokens_(min_tokens), states_(stops.size(), 0) {}

int32_t StopChecker::Push(std::string_view piece, std::string* out) {
  const bool counts = ++num_tokens_ > min_tokens_;
  for (size_t i = 0; i < piece.size(); ++i) {
    int32_t found = -1;
    for (int32_t s = 0; s < stops_->size(); ++s) {
      states_[s] = stops_->Advance(s, states_[s], piece[i]);
      if (found < 0 && counts && states_[s] == static_cast<int32_t>(stops_->text(s).size())) found = s;
    }
    if (found >= 0) {
      held_.append(piece.substr(0, i + 1));
      // The stop began no earlier than what is held: a match in progress is never sent.
      if (!include_stop_) held_.resize(held_.size() - stops_->text(found).size());
      Flush(out);
      return found;
    }
  }
  held_.append(piece);
  int32_t keep = 0;
  for (int32_t s = 0; s < stops_->size(); ++s) {
    // A whole match here is one that does not count; it may overlap the beginning of one that will.
    const bool whole = states_[s] == static_cast<int32_t>(stops_->text(s).size());
    keep = std::max(keep, whole ? stops_->TailBytes(s) : states_[s]);
  }
  out->append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return -1;
}

void StopChecker::Flush(std::string* out) {
  out->append(held_);
  held_.clear();
}

}  // namespace quire
