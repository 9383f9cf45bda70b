#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"

struct pcre2_real_code_8;

namespace quire {

// A pre-tokenizer's regular expression with the meaning Oniguruma (Ruby syntax, Unicode 16) gives it, matched by PCRE2.
// Immutable, safe to use from many threads at once.
class Regex {
 public:
  // kInvalidArgument if it does not compile; kUnimplemented naming a construct that the two engines read differently.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(std::string_view pattern);

  // Appends all matches, left to right, none overlapping; an empty one never at the end of the one before it.
  // `text` must be valid UTF-8, and known to PCRE2 (WithKnownCategories). kResourceExhausted if the engine gave up.
  absl::Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  Regex() = default;

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
};

}  // namespace quire
