#pragma once

#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace quire::testing {

// Checks every line of an encode/decode file (shared/ref/tokenizers/README.md): ids, decoded, decoded_skip. Returns how
// many lines it checked.
int CheckEncodeCases(const Tokenizer& tokenizer, const std::string& path);

// The same for a file of incremental decodings, pieces and flush.
int CheckStreamCases(const Tokenizer& tokenizer, const std::string& path);

}  // namespace quire::testing
