#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf.h"

// What a GGUF file says about its tokenizer (formats.md 6.3), checked. Errors are kInvalidArgument naming the key, or
// kUnimplemented. Views live as long as the file.
namespace quire {

enum class GgufTokenType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Left out of decoded text on request, and recognised inside texts.
inline bool IsSpecial(GgufTokenType type) { return type == GgufTokenType::kControl || type == GgufTokenType::kUnknown; }

// Tokens by id. Spellings may be there twice.
struct GgufVocab {
  std::vector<std::string_view> texts;
  std::vector<GgufTokenType> types;
};
absl::StatusOr<GgufVocab> ReadGgufVocab(const GgufFile& file);

// tokenizer.ggml.scores, all finite, one a token.
absl::StatusOr<std::vector<double>> ReadGgufScores(const GgufFile& file, size_t num_tokens);

// What a value of tokenizer.ggml.pre stands for.
struct GgufPreSpec {
  std::string_view name;
  std::string_view pattern = "";  // empty: GPT-2's own
  bool single_digits = false;     // each a piece of its own, before the pattern
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
};
absl::StatusOr<const GgufPreSpec*> FindGgufPreSpec(const GgufFile& file);

// Whether texts get a space in front (tokenizer.ggml.add_space_prefix, true if absent).
absl::StatusOr<bool> GgufAddsSpacePrefix(const GgufFile& file);

// The ids that encoding puts before and after a text (tokenizer.ggml.add_bos_token, add_eos_token).
struct GgufAround {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};
absl::StatusOr<GgufAround> ReadGgufAround(const GgufFile& file, bool adds_bos_if_absent, size_t num_tokens);

}  // namespace quire
