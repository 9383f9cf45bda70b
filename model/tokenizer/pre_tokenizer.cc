#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"

namespace quire {
namespace {

// Rust's is_numeric is a version ahead of Oniguruma: the digits that Unicode 17 added.
constexpr std::string_view kDigitPattern = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// Matches and what lies between them, in order.
std::vector<Span> CoverWithSpans(size_t size, const std::vector<Regex::Match>& matches, bool invert) {
  std::vector<Span> spans;
  spans.reserve(2 * matches.size() + 1);
  size_t from = 0;
  for (const Regex::Match& match : matches) {
    if (from != match.begin) spans.push_back({from, match.begin, invert});
    spans.push_back({match.begin, match.end, !invert});
    from = match.end;
  }
  if (from != size) spans.push_back({from, size, invert});
  return spans;
}

// Joins each span with the one before it where `joins` says so of (it, the one before).
template <typename Joins>
void JoinWithPrevious(std::vector<Span>* spans, Joins joins) {
  std::vector<Span> joined;
  bool previous_match = false;
  for (const Span& span : *spans) {
    if (!joined.empty() && joins(span.is_match, previous_match)) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
    previous_match = span.is_match;
  }
  *spans = std::move(joined);
}

void JoinWithNext(std::vector<Span>* spans) {
  std::vector<Span> joined;
  bool previous_match = false;
  for (auto span = spans->rbegin(); span != spans->rend(); ++span) {
    if (!joined.empty() && span->is_match && !previous_match) {
      joined.back().begin = span->begin;
    } else {
      joined.push_back(*span);
    }
    previous_match = span->is_match;
  }
  std::reverse(joined.begin(), joined.end());
  *spans = std::move(joined);
}

void ApplyBehavior(SplitPreTokenizer::Behavior behavior, std::vector<Span>* spans) {
  using Behavior = SplitPreTokenizer::Behavior;
  switch (behavior) {
    case Behavior::kIsolated:
      return;
    case Behavior::kRemoved:
      std::erase_if(*spans, [](const Span& span) { return span.is_match; });
      return;
    case Behavior::kMergedWithPrevious:
      return JoinWithPrevious(spans, [](bool is_match, bool previous) { return is_match && !previous; });
    case Behavior::kMergedWithNext:
      return JoinWithNext(spans);
    case Behavior::kContiguous:
      return JoinWithPrevious(spans, [](bool is_match, bool previous) { return is_match == previous; });
  }
}

}  // namespace

absl::Status SplitPreTokenizer::Apply(Pieces* pieces) const {
  std::string storage;
  const std::string_view subject = WithKnownCategories(pieces->text, &storage);
  Pieces out;
  out.text.reserve(pieces->text.size());
  std::vector<Regex::Match> matches;
  size_t begin = 0;
  for (const size_t end : pieces->ends) {
    matches.clear();
    QUIRE_RETURN_IF_ERROR(regex_->FindAll(subject.substr(begin, end - begin), &matches));
    std::vector<Span> spans = CoverWithSpans(end - begin, matches, invert_);
    ApplyBehavior(behavior_, &spans);
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      out.text.append(pieces->text, begin + span.begin, span.end - span.begin);
      out.ends.push_back(out.text.size());
    }
    begin = end;
  }
  *pieces = std::move(out);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ByteLevelPreTokenizer::Create(bool add_prefix_space, bool use_regex) {
  std::unique_ptr<ByteLevelPreTokenizer> made(new ByteLevelPreTokenizer);
  made->add_prefix_space_ = add_prefix_space;
  if (use_regex) {
    QUIRE_ASSIGN_OR_RETURN(auto regex, Regex::Compile(byte_level::kGpt2Pattern));
    made->split_ =
        std::make_unique<SplitPreTokenizer>(std::move(regex), SplitPreTokenizer::Behavior::kIsolated, /*invert=*/false);
  }
  return made;
}

absl::Status ByteLevelPreTokenizer::Apply(Pieces* pieces) const {
  if (add_prefix_space_) {
    Pieces spaced;
    size_t begin = 0;
    for (const size_t end : pieces->ends) {
      if (pieces->text[begin] != ' ') spaced.text.push_back(' ');
      spaced.text.append(pieces->text, begin, end - begin);
      spaced.ends.push_back(spaced.text.size());
      begin = end;
    }
    *pieces = std::move(spaced);
  }
  if (split_ != nullptr) QUIRE_RETURN_IF_ERROR(split_->Apply(pieces));
  std::string spelling;
  spelling.reserve(2 * pieces->text.size());
  size_t begin = 0;
  for (size_t& end : pieces->ends) {
    byte_level::AppendSpelling(std::string_view(pieces->text).substr(begin, end - begin), &spelling);
    begin = std::exchange(end, spelling.size());
  }
  pieces->text = std::move(spelling);
  return absl::OkStatus();
}

absl::Status SequencePreTokenizer::Apply(Pieces* pieces) const {
  for (const auto& part : parts_) QUIRE_RETURN_IF_ERROR(part->Apply(pieces));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSplit(std::string_view pattern, SplitPreTokenizer::Behavior behavior,
                                                        bool invert) {
  QUIRE_ASSIGN_OR_RETURN(auto regex, Regex::Compile(pattern));
  return std::make_unique<SplitPreTokenizer>(std::move(regex), behavior, invert);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeDigits(bool individual_digits) {
  using Behavior = SplitPreTokenizer::Behavior;
  return MakeSplit(kDigitPattern, individual_digits ? Behavior::kIsolated : Behavior::kContiguous, /*invert=*/false);
}

}  // namespace quire
