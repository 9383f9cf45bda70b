#pragma once

#include <cstddef>
#include <vector>

#include "model/tokenizer/pre_tokenizer.h"

namespace quire {

// Cuts `span` at `matches`, ascending positions inside it, and appends the pieces that are left, none empty.
void CutAtMatches(TextRange span, const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                  std::vector<TextRange>* pieces);

}  // namespace quire
