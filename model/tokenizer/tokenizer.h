#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace quire {

// Text to ids and back, exactly as Hugging Face's `tokenizers` does it for the same file. Immutable after loading and
// safe to use from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `text` must be valid UTF-8 (kInvalidArgument otherwise). Added tokens inside the text are recognised.
  // add_special_tokens: also what the post-processor (or GGUF's add_bos_token, add_eos_token) puts around it.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const = 0;

  // Always valid UTF-8: one U+FFFD for each maximal broken part. Ids outside the vocabulary decode to nothing.
  virtual std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // One more than the largest id, added tokens included; may exceed the rows of the model's embedding.
  virtual int32_t vocab_size() const = 0;
  // The bytes one token stands for in the text (byte-level decoded; a special token's own spelling). Empty for ids
  // outside the vocabulary. Valid as long as the tokenizer.
  virtual std::string_view TokenBytes(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // The id spelled exactly so, or -1.
  virtual int32_t TokenId(std::string_view spelling) const = 0;
  virtual bool adds_bos() const = 0;
};

// From a tokenizer.json, a directory holding one, or a .gguf file (formats.md 6.3, 6.4). kNotFound;
// kInvalidArgument naming the file and what is wrong; kUnimplemented naming a component that is not built.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);

}  // namespace quire
