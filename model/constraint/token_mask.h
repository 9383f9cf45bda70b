#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "model/constraint/state_store.h"
#include "model/constraint/token_vocabulary.h"

namespace quire::constraint {

// The tokens that may come next in `state`, found by walking the vocabulary's trie through the automaton, and kept in
// the store. Null if the store is full or *steps got negative (see StateStore::Next).
const TokenMask* FindTokenMask(const TokenVocabulary& vocabulary, const State* state, StateStore* store,
                               int64_t* steps);

// The only token of a mask with num_allowed == 1.
int32_t OnlyToken(const TokenMask& mask);

// words: TokenVocabulary::num_words() of them.
void WriteMask(const TokenMask& mask, absl::Span<uint32_t> words);

}  // namespace quire::constraint
