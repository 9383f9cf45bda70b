#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace quire::testing {

// A tokenizer whose tokens are single bytes, with extra pieces and special tokens behind them. Encoding never merges.
class FakeTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kFirstPiece = 258;

  // `pieces` get the ids from kFirstPiece on.
  explicit FakeTokenizer(std::vector<std::string> pieces = {}) : pieces_(std::move(pieces)) {
    for (int i = 0; i < 256; ++i) bytes_.push_back(std::string(1, static_cast<char>(i)));
  }

  // Called at the start of each Encode, on the thread that encodes.
  std::function<void(std::string_view)> on_encode;

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const override {
    if (on_encode) on_encode(text);
    if (!utf8::IsValid(text)) return absl::InvalidArgumentError("not valid UTF-8");
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(kBos);
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  absl::StatusOr<Encoding> EncodeWith(std::string_view text, const EncodeOptions& options) const override {
    absl::StatusOr<std::vector<int32_t>> ids = Encode(text, options.add_special_tokens);
    if (!ids.ok()) return ids.status();
    const int64_t specials = options.add_special_tokens ? 1 : 0;
    if (options.max_tokens >= 0 && options.max_tokens < specials)
      return absl::InvalidArgumentError("no room for the special tokens");
    const int64_t excess = options.max_tokens < 0 ? 0 : static_cast<int64_t>(ids->size()) - options.max_tokens;
    if (excess > 0) {
      const auto first = options.keep == EncodeOptions::Keep::kLast ? ids->begin() + specials : ids->end() - excess;
      ids->erase(first, first + excess);
    }
    return Encoding{*std::move(ids), {}};
  }
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes, text;
    for (int32_t id : ids) {
      if (!(skip_special_tokens && IsSpecial(id))) bytes += TokenBytes(id);
    }
    utf8::AppendLossy(bytes, &text);
    return text;
  }
  int32_t vocab_size() const override { return kFirstPiece + static_cast<int32_t>(pieces_.size()); }
  std::string_view TokenBytes(int32_t id) const override {
    if (id >= 0 && id < 256) return bytes_[id];
    if (id == kBos) return "<bos>";
    if (id == kEos) return "<eos>";
    if (id >= kFirstPiece && id < vocab_size()) return pieces_[id - kFirstPiece];
    return "";
  }
  // As Llama 2's kind: the first word has no space before it.
  bool drops_first_space = false;
  std::string_view FirstTokenBytes(int32_t id) const override {
    std::string_view bytes = TokenBytes(id);
    if (drops_first_space && !bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
    return bytes;
  }
  int32_t first_special_piece = std::numeric_limits<int32_t>::max();  // pieces from here on are special
  bool IsSpecial(int32_t id) const override { return id == kBos || id == kEos || id >= first_special_piece; }
  int32_t TokenId(std::string_view spelling) const override {
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (TokenBytes(id) == spelling) return id;
    }
    return -1;
  }
  bool adds_bos() const override { return true; }

 private:
  std::vector<std::string> bytes_, pieces_;
};

}  // namespace quire::testing
