#include "model/tokenizer/token_decoder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"

namespace quire {
namespace {

// The value of "<0xNN>" as the reference reads it, which takes "<0x+N>" for a number too; -1 for anything else.
int ByteValue(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
  };
  const int high = spelling[3] == '+' ? 0 : digit(spelling[3]);
  const int low = digit(spelling[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void StripEnds(const std::string& character, int64_t start, int64_t stop, std::string* text) {
  size_t begin = 0;
  size_t end = text->size();
  for (int64_t i = 0; i < start && text->compare(begin, character.size(), character) == 0; ++i) {
    begin += character.size();
  }
  for (int64_t i = 0; i < stop && end - begin >= character.size(); ++i) {
    if (text->compare(end - character.size(), character.size(), character) != 0) break;
    end -= character.size();
  }
  *text = text->substr(begin, end - begin);
}

}  // namespace

absl::Status TokenDecoder::CheckNotJoined(const char* name) const {
  if (joined_ == Joined::kNo) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(name, " after a step that joins tokens is not supported"));
}

absl::Status TokenDecoder::AddReplace(Pattern pattern, std::string content) {
  QUIRE_RETURN_IF_ERROR(CheckNotJoined("Replace"));
  steps_.push_back({.replace = std::move(pattern), .text = std::move(content)});
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddMetaspace(std::string mark, bool drop_first) {
  QUIRE_RETURN_IF_ERROR(CheckNotJoined("Metaspace"));
  first_differs_ |= drop_first;
  steps_.push_back({.text = std::move(mark), .is_metaspace = true, .drop_first = drop_first});
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddStrip(std::string character, int64_t start, int64_t stop) {
  if (joined_ == Joined::kNo) {
    steps_.push_back({.text = std::move(character), .start = start, .stop = stop});
    return absl::OkStatus();
  }
  if (joined_ != Joined::kAll) return CheckNotJoined("Strip");
  if (stop > 0) return absl::UnimplementedError("Strip at the end of the joined text is not supported");
  if (start == 0) return absl::OkStatus();
  if (rules_.strip_count > 0 && rules_.strip != character) {
    return absl::UnimplementedError("a second Strip of the joined text is not supported");
  }
  rules_.strip = std::move(character);
  rules_.strip_count += start;
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddByteFallback() {
  QUIRE_RETURN_IF_ERROR(CheckNotJoined("ByteFallback"));
  joined_ = Joined::kByteRuns;
  rules_.byte_runs = true;
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddByteLevel() {
  QUIRE_RETURN_IF_ERROR(CheckNotJoined("ByteLevel"));
  joined_ = Joined::kAll;
  byte_level_ = true;
  return absl::OkStatus();
}

absl::Status TokenDecoder::AddFuse() {
  joined_ = Joined::kAll;
  return absl::OkStatus();
}

absl::Status TokenDecoder::ApplyReplace(const Step& step, std::string* text) const {
  std::string storage;
  const std::string_view known = WithKnownCategories(*text, &storage);
  std::vector<TextRange> matches;
  QUIRE_RETURN_IF_ERROR(step.replace->FindAll(*text, known, {0, text->size()}, &matches));
  if (matches.empty()) return absl::OkStatus();
  std::string replaced;
  size_t done = 0;
  for (const TextRange& match : matches) {
    replaced.append(*text, done, match.begin - done);
    replaced.append(step.text);
    done = match.end;
  }
  replaced.append(*text, done);
  *text = std::move(replaced);
  return absl::OkStatus();
}

absl::StatusOr<TokenDecoder::Piece> TokenDecoder::Decode(std::string_view spelling, bool is_first) const {
  Piece piece{.bytes = std::string(spelling)};
  for (const Step& step : steps_) {
    if (step.replace.has_value()) {
      QUIRE_RETURN_IF_ERROR(ApplyReplace(step, &piece.bytes));
    } else if (step.is_metaspace) {
      absl::StrReplaceAll({{step.text, is_first && step.drop_first ? "" : " "}}, &piece.bytes);
    } else {
      StripEnds(step.text, step.start, step.stop, &piece.bytes);
    }
  }
  if (byte_level_) piece.bytes = byte_level::BytesOf(piece.bytes);
  if (!rules_.byte_runs) return piece;
  if (const int value = ByteValue(piece.bytes); value >= 0) {
    piece.bytes.assign(1, static_cast<char>(value));
    piece.is_byte = true;
  }
  return piece;
}

}  // namespace quire
