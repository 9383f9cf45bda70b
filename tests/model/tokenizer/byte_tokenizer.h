#pragma once

#include <memory>
#include <string>

#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace quire::testing {

// A tokenizer.json with a token for every byte (its id is the byte), the merges "a b", "ab ab" and "c c" (256 to 258),
// and the special token <s> (259).
nlohmann::json ByteTokenizerSpec();

// Loads it; ends the test program if it does not load.
std::unique_ptr<Tokenizer> LoadSpec(const nlohmann::json& spec);

}  // namespace quire::testing
