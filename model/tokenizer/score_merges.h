#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/bpe.h"

// SentencePiece's BPE has scores in the place of merges: any two tokens that spell a third become that one.
namespace quire {

inline constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581, which stands for a space

// Adds to `bpe`, which has the tokens already, each way to make one of `texts` from two, ranked by its score, and the
// characters that are a part of tokens only. One score a text.
void AddMergesByScore(const std::vector<std::string_view>& texts, const std::vector<double>& scores, Bpe* bpe);

// The same as a list of pairs of tokens, the first first, for a model that ranks each pair: by score, then the longer
// left part first, as Hugging Face's converter orders them.
std::vector<std::pair<std::string_view, std::string_view>> ListMergesByScore(const std::vector<std::string_view>& texts,
                                                                             const std::vector<double>& scores);

}  // namespace quire
