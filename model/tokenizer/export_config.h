#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace quire {

// The text of a tokenizer_config.json to go with ExportTokenizerJson: of a .gguf file made from what it says (special
// tokens by name, chat template, context), else the one that lies beside tokenizer.json, or a minimal one. kNotFound;
// kInvalidArgument naming the file and what is wrong.
absl::StatusOr<std::string> ExportTokenizerConfig(const std::string& path);

}  // namespace quire
