#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace quire {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

struct EncodeOptions {
  enum class Keep { kFirst, kLast };

  // Also what the post-processor (or GGUF's add_bos_token, add_eos_token) puts around the text.
  bool add_special_tokens = true;
  bool with_offsets = false;
  // At most so many ids, those of add_special_tokens included, which always stay; -1: all. Where the text has more,
  // `keep` says which of its ids stay.
  int64_t max_tokens = -1;
  Keep keep = Keep::kFirst;
  // Stretches of the text in which no special token is recognised, not even one that reaches in from outside: what a
  // user wrote is spelled out there. In order, apart from each other. Other added tokens are recognised.
  std::vector<TextRange> literal = {};
};

struct Encoding {
  std::vector<int32_t> ids;
  // If asked for, one an id: the bytes of the text that it stands for, as Hugging Face's `tokenizers` counts them:
  // whole characters, so that tokens of one character overlap; empty at 0 for what add_special_tokens put there.
  std::vector<TextRange> offsets;
};

// How the bytes of tokens become text.
struct JoinRules {
  // A run of byte tokens is text only if the whole run is valid UTF-8, else each byte is one U+FFFD. Without it the
  // bytes of all tokens follow one another, and each maximal broken part is one U+FFFD.
  bool byte_runs = false;
  // The text loses this character (UTF-8) from its start, at most so many times.
  std::string strip;
  int64_t strip_count = 0;
};

// Text to ids and back, exactly as Hugging Face's `tokenizers` does it for the same file. Immutable after loading and
// safe to use from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `text` must be valid UTF-8 (kInvalidArgument otherwise). Added tokens inside the text are recognised.
  // add_special_tokens: also what the post-processor (or GGUF's add_bos_token, add_eos_token) puts around it.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const = 0;
  // The same with more to ask for. kInvalidArgument also if max_tokens leaves no room for the special tokens.
  virtual absl::StatusOr<Encoding> EncodeWith(std::string_view, const EncodeOptions&) const {
    return absl::UnimplementedError("this tokenizer gives no offsets and cuts nothing");
  }

  // Always valid UTF-8: one U+FFFD for each maximal broken part. Ids outside the vocabulary decode to nothing.
  virtual std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // One more than the largest id, added tokens included; may exceed the rows of the model's embedding.
  virtual int32_t vocab_size() const = 0;
  // The bytes one token stands for in the text (byte-level decoded; a special token's own spelling). Empty for ids
  // outside the vocabulary. Valid as long as the tokenizer.
  virtual std::string_view TokenBytes(int32_t id) const = 0;
  // The same where the token is the first that is decoded: some tokenizers then drop its word mark.
  virtual std::string_view FirstTokenBytes(int32_t id) const { return TokenBytes(id); }
  // Whether JoinRules::byte_runs speaks of this token.
  virtual bool IsByte(int32_t) const { return false; }
  virtual JoinRules join_rules() const { return {}; }
  virtual bool IsSpecial(int32_t id) const = 0;
  // The id spelled exactly so, or -1.
  virtual int32_t TokenId(std::string_view spelling) const = 0;
  virtual bool adds_bos() const = 0;
};

// From a tokenizer.json, a directory holding one, or a .gguf file (formats.md 6.3, 6.4). kNotFound;
// kInvalidArgument naming the file and what is wrong; kUnimplemented naming a component that is not built.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

// The text of a tokenizer.json that gives the same ids: of a .gguf file made from its vocabulary, else the file itself.
// Errors as above.
absl::StatusOr<std::string> ExportTokenizerJson(const std::string& path);

}  // namespace quire
