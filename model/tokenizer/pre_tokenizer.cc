#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/split.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

// Rust's is_numeric is a version ahead of Oniguruma: the digits that Unicode 17 added.
constexpr std::string_view kDigitPattern = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(Pieces* pieces) const override {
    const std::string_view text = pieces->text.text();
    std::string storage;
    const std::string_view known = pattern_.needs_known_categories() ? WithKnownCategories(text, &storage) : text;
    std::vector<TextRange> out;
    std::vector<TextRange> matches;
    for (const TextRange& span : pieces->spans) {
      matches.clear();
      QUIRE_RETURN_IF_ERROR(pattern_.FindAll(text, known, span, &matches));
      CutAtMatches(span, matches, behavior_, invert_, &out);
    }
    pieces->spans = std::move(out);
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Cuts each piece at the characters that `is_match` is true of.
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_match)(char32_t), SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}

  absl::Status Apply(Pieces* pieces) const override {
    std::vector<TextRange> out;
    std::vector<TextRange> matches;
    for (const TextRange& span : pieces->spans) {
      matches.clear();
      for (size_t i = span.begin; i < span.end;) {
        const size_t begin = i;
        if (is_match_(utf8::Decode(pieces->text.text(), &i))) matches.push_back({begin, i});
      }
      CutAtMatches(span, matches, behavior_, /*invert=*/false, &out);
    }
    pieces->spans = std::move(out);
    return absl::OkStatus();
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

class WordSplit : public PreTokenizer {
 public:
  absl::Status Apply(Pieces* pieces) const override {
    enum class Kind { kSpace, kWord, kOther };
    std::vector<TextRange> out;
    for (const TextRange& span : pieces->spans) {
      Kind previous = Kind::kSpace;
      for (size_t i = span.begin; i < span.end;) {
        const size_t begin = i;
        const char32_t c = utf8::Decode(pieces->text.text(), &i);
        const Kind kind = IsWordCharacter(c) ? Kind::kWord : IsWhiteSpace(c) ? Kind::kSpace : Kind::kOther;
        if (kind == Kind::kSpace) {
        } else if (kind == previous) {
          out.back().end = i;
        } else {
          out.push_back({begin, i});
        }
        previous = kind;
      }
    }
    pieces->spans = std::move(out);
    return absl::OkStatus();
  }
};

// Rewrites each piece on its own by `rewrite(old piece, rewriter)`.
template <typename Rewrite>
void RewritePieces(Pieces* pieces, Rewrite rewrite) {
  AlignedText::Rewriter rewriter(&pieces->text);
  for (TextRange& span : pieces->spans) {
    const size_t begin = rewriter.size();
    rewrite(span, &rewriter);
    span = {begin, rewriter.size()};
  }
  rewriter.Finish();
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, std::unique_ptr<PreTokenizer> split)
      : add_prefix_space_(add_prefix_space), split_(std::move(split)) {}

  absl::Status Apply(Pieces* pieces) const override {
    if (add_prefix_space_) {
      RewritePieces(pieces, [&](TextRange piece, AlignedText::Rewriter* rewriter) {
        if (pieces->text.text()[piece.begin] != ' ') rewriter->Put(" ", piece.begin);
        rewriter->Keep(piece.begin, piece.end);
      });
    }
    if (split_ != nullptr) QUIRE_RETURN_IF_ERROR(split_->Apply(pieces));
    if (!spell_) return absl::OkStatus();
    RewritePieces(pieces, [&](TextRange piece, AlignedText::Rewriter* rewriter) {
      std::string spelling;
      for (size_t i = piece.begin; i < piece.end; ++i) {
        spelling.clear();
        byte_level::AppendSpelling(std::string_view(pieces->text.text()).substr(i, 1), &spelling);
        rewriter->Put(spelling, i);
      }
    });
    return absl::OkStatus();
  }

  bool LeaveBytes() override {
    spell_ = false;
    return true;
  }

 private:
  bool add_prefix_space_;
  bool spell_ = true;
  std::unique_ptr<PreTokenizer> split_;  // null: none
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  MetaspacePreTokenizer(MetaspaceOptions options, std::unique_ptr<PreTokenizer> split)
      : options_(std::move(options)), split_(std::move(split)) {}

  absl::Status Apply(Pieces* pieces) const override {
    RewritePieces(pieces, [&](TextRange piece, AlignedText::Rewriter* rewriter) {
      const std::string_view text = pieces->text.text();
      if (WantsMark(*pieces, piece)) rewriter->Put(options_.mark, piece.begin);
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t space = std::min(text.find(' ', i), piece.end);
        rewriter->Keep(i, space);
        if (space < piece.end) rewriter->Put(options_.mark, space);
        i = space + 1;
      }
    });
    return split_ == nullptr ? absl::OkStatus() : split_->Apply(pieces);
  }

 private:
  bool WantsMark(const Pieces& pieces, TextRange piece) const {
    using Prepend = MetaspaceOptions::Prepend;
    const std::string_view text = std::string_view(pieces.text.text()).substr(piece.begin);
    if (options_.prepend == Prepend::kNever || text[0] == ' ' || text.starts_with(options_.mark)) return false;
    return options_.prepend == Prepend::kAlways || (piece.begin == 0 && pieces.text.offset() == 0);
  }

  MetaspaceOptions options_;
  std::unique_ptr<PreTokenizer> split_;  // null: none
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}

  absl::Status Apply(Pieces* pieces) const override {
    for (const auto& part : parts_) QUIRE_RETURN_IF_ERROR(part->Apply(pieces));
    return absl::OkStatus();
  }

  bool LeaveBytes() override { return !parts_.empty() && parts_.back()->LeaveBytes(); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeSplit(Pattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<PatternSplit>(std::move(pattern), behavior, invert);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeRegexSplit(std::string_view regex, SplitBehavior behavior) {
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::OfRegex(regex));
  return MakeSplit(std::move(pattern), behavior, /*invert=*/false);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeDigits(bool individual_digits) {
  return MakeRegexSplit(kDigitPattern, individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior) {
  return std::make_unique<CharacterSplit>(IsPunctuation, behavior);
}

std::unique_ptr<PreTokenizer> MakeWhitespace(bool words) {
  if (words) return std::make_unique<WordSplit>();
  return std::make_unique<CharacterSplit>(IsWhiteSpace, SplitBehavior::kRemoved);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeByteLevel(bool add_prefix_space, bool use_regex) {
  std::unique_ptr<PreTokenizer> split;
  if (use_regex) {
    QUIRE_ASSIGN_OR_RETURN(split, MakeRegexSplit(byte_level::kGpt2Pattern, SplitBehavior::kIsolated));
  }
  return std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, std::move(split));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeMetaspace(MetaspaceOptions options) {
  std::unique_ptr<PreTokenizer> split;
  if (options.split) {
    QUIRE_ASSIGN_OR_RETURN(Pattern mark, Pattern::OfLiteral(options.mark));
    split = MakeSplit(std::move(mark), SplitBehavior::kMergedWithNext, /*invert=*/false);
  }
  return std::make_unique<MetaspacePreTokenizer>(std::move(options), std::move(split));
}

std::unique_ptr<PreTokenizer> MakeSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

}  // namespace quire
