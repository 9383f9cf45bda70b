#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"
#include "nlohmann/json.hpp"

// One component of a tokenizer.json each. `where` is its path in the file, for messages. kInvalidArgument or, for a
// component that is not built, kUnimplemented.
namespace quire {

absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const nlohmann::json& spec, const std::string& where);
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const nlohmann::json& spec, const std::string& where);

// The ids that the post-processor puts around a single text, and what it does to offsets.
absl::Status ApplyPostProcessor(const nlohmann::json& spec, const std::string& where, PostProcessing* post);

absl::StatusOr<TokenDecoder> MakeDecoder(const nlohmann::json& spec, const std::string& where);

}  // namespace quire
