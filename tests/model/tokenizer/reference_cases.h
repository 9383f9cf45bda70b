#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace quire::testing {

// Checks one encode/decode case: ids, decoded, decoded_skip and, where it has them, offsets (begin and end of each id
// in turn, in bytes).
void CheckEncodeCase(const Tokenizer& tokenizer, const nlohmann::ordered_json& row);

// Checks every line of an encode/decode file (shared/ref/tokenizers/README.md). Returns how many lines it checked.
// `other_ids`: texts for which other ids than the file's are right.
int CheckEncodeCases(const Tokenizer& tokenizer, const std::string& path,
                     const std::map<std::string, std::vector<int32_t>>& other_ids = {});

// The same for a file of incremental decodings, pieces and flush.
int CheckStreamCases(const Tokenizer& tokenizer, const std::string& path);

}  // namespace quire::testing
