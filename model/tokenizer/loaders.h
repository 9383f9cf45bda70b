#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

// From the text of a tokenizer.json (formats.md 6.4). kInvalidArgument naming the field and what is wrong with it;
// kUnimplemented naming a component that is not built. The caller adds the file's name.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(std::string_view text);

// From a GGUF file's tokenizer.ggml keys (formats.md 6.3), with the stages of the tokenizer.json that the model came
// from: tokenizer.ggml.pre names them. Errors as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerGguf(const GgufFile& file);

// The text of a tokenizer.json that makes the same of texts as LoadTokenizerGguf. Errors as above.
absl::StatusOr<std::string> TokenizerJsonOfGguf(const GgufFile& file);

}  // namespace quire
