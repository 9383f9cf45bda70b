#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "nlohmann/json.hpp"

// One component of a tokenizer.json each. `where` is its path in the file, for messages. kInvalidArgument or, for a
// component that is not built, kUnimplemented.
namespace quire {

absl::StatusOr<std::unique_ptr<Normalizer>> MakeNormalizer(const nlohmann::json& spec, const std::string& where);
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const nlohmann::json& spec, const std::string& where);

// Puts the ids that the post-processor adds around those in *prefix and *suffix.
absl::Status ApplyPostProcessor(const nlohmann::json& spec, const std::string& where, std::vector<int32_t>* prefix,
                                std::vector<int32_t>* suffix);

// OK if the decoder is byte-level: the only one built.
absl::Status CheckDecoder(const nlohmann::json& spec, const std::string& where);

}  // namespace quire
