#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "model/constraint/constraint.h"
#include "model/constraint/matcher.h"
#include "model/constraint/token_vocabulary.h"

namespace quire::constraint::testing {

inline constexpr int32_t kEnd = 256;  // of ByteVocabulary

// Each byte is a token; then kEnd; then `pieces`.
inline std::shared_ptr<const TokenVocabulary> ByteVocabulary(const std::vector<std::string>& pieces = {}) {
  static const auto* const bytes = [] {
    auto* all = new std::vector<std::string>;
    for (int i = 0; i < 256; ++i) all->push_back(std::string(1, static_cast<char>(i)));
    return all;
  }();
  std::vector<std::string_view> tokens(bytes->begin(), bytes->end());
  tokens.push_back("</s>");
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  return std::make_shared<const TokenVocabulary>(tokens, std::vector<int32_t>{kEnd});
}

struct Verdict {
  bool accepted = false;
  int64_t prefix_bytes = 0;
};

// What a fresh matcher says of `text`, asked as a whole and byte by byte, which must agree.
inline Verdict Judge(const std::shared_ptr<const Constraint>& constraint, const std::string& text) {
  ConstraintMatcher matcher(constraint), stepwise(constraint);
  const auto prefix = matcher.MatchedPrefix(text);
  EXPECT_TRUE(prefix.ok()) << prefix.status();
  const bool taken = matcher.AcceptBytes(text).ok();
  int64_t steps = 0;
  std::vector<uint32_t> words(static_cast<size_t>(constraint->vocabulary().num_words()));
  for (const char byte : text) {
    const auto id = static_cast<unsigned char>(byte);
    EXPECT_TRUE(stepwise.FillNextTokenBitmask(absl::MakeSpan(words)).ok());
    const bool allowed = (words[id / 32] >> id % 32 & 1) != 0;
    EXPECT_EQ(stepwise.AcceptToken(id).ok(), allowed);
    if (!allowed) break;
    ++steps;
  }
  EXPECT_EQ(steps, *prefix);
  EXPECT_EQ(taken, *prefix == static_cast<int64_t>(text.size()));
  return {taken && matcher.IsAccepting(), *prefix};
}

}  // namespace quire::constraint::testing
