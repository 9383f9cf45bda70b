#include "model/constraint/token_constraint.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/model/constraint/constraint_test_util.h"

namespace quire::constraint::testing {
namespace {

std::vector<uint32_t> MaskOf(const TokenConstraint& constraint) {
  std::vector<uint32_t> words((static_cast<size_t>(constraint.vocab_size()) + 31) / 32);
  constraint.FillMask(absl::MakeSpan(words));
  return words;
}

std::vector<int32_t> Allowed(const TokenConstraint& constraint) {
  const std::vector<uint32_t> words = MaskOf(constraint);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < constraint.vocab_size(); ++id) {
    if ((words[id / 32] >> id % 32 & 1) != 0) ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> Regex(const std::string& pattern,
                                                             std::shared_ptr<const TokenVocabulary> vocabulary,
                                                             const ConstraintLimits& limits = {}) {
  return MakeTokenConstraint(*CompileRegex(pattern, std::move(vocabulary), limits));
}

TEST(TokenConstraintTest, SaysWhatMayFollowUntilNothingMay) {
  const auto begin = *Regex("ab|ac", ByteVocabulary());
  EXPECT_EQ(begin->vocab_size(), 257);
  ASSERT_EQ(begin->num_allowed(), 1);
  EXPECT_EQ(begin->only_token(), 'a');
  const auto sequence = begin->Clone();
  EXPECT_EQ(sequence->Accept('b').code(), absl::StatusCode::kInvalidArgument);
  const auto other = begin->Clone();
  EXPECT_EQ(other->Accept('a'), absl::OkStatus());
  EXPECT_EQ(Allowed(*other), (std::vector<int32_t>{'b', 'c'}));
  const auto fork = other->Clone();
  EXPECT_EQ(other->Accept('b'), absl::OkStatus());
  ASSERT_EQ(other->num_allowed(), 1);
  EXPECT_EQ(other->only_token(), kEnd);
  EXPECT_EQ(other->Accept(kEnd), absl::OkStatus());
  EXPECT_EQ(other->num_allowed(), 0);
  EXPECT_EQ(fork->num_allowed(), 2) << "goes on by itself";
  EXPECT_EQ(begin->only_token(), 'a');
}

TEST(TokenConstraintTest, ForgetsWhatWasTaken) {
  const auto begin = *Regex("(a|b)*c", ByteVocabulary());
  const auto sequence = begin->Clone();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(sequence->Accept(i % 2 == 0 ? 'a' : 'b'), absl::OkStatus());
  EXPECT_EQ(Allowed(*sequence), (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(sequence->Accept('c'), absl::OkStatus());
  EXPECT_EQ(Allowed(*sequence), (std::vector<int32_t>{kEnd}));
}

TEST(TokenConstraintTest, WithoutAnEndTokenACompleteTextEndsItself) {
  const auto vocabulary =
      std::make_shared<const TokenVocabulary>(std::vector<std::string_view>{"a", "b"}, std::vector<int32_t>{});
  const auto sequence = (*Regex("ab", vocabulary))->Clone();
  EXPECT_EQ(sequence->Accept(0), absl::OkStatus());
  EXPECT_EQ(sequence->num_allowed(), 1);
  EXPECT_EQ(sequence->Accept(1), absl::OkStatus());
  EXPECT_EQ(sequence->num_allowed(), 0);
  EXPECT_EQ(Regex("", vocabulary).status(),
            absl::InvalidArgumentError("only the empty text is allowed, and the model has no token that ends it"));
}

TEST(TokenConstraintTest, ATextThatTheVocabularyCannotSpellIsAnError) {
  const auto vocabulary =
      std::make_shared<const TokenVocabulary>(std::vector<std::string_view>{"a", "</s>"}, std::vector<int32_t>{1});
  EXPECT_EQ(Regex("ax", vocabulary).status().code(), absl::StatusCode::kFailedPrecondition) << "forced there";
  for (const char* behind : {"xa", "ax"}) {
    const auto reasoned = MakeTokenConstraint(*CompileRegex(behind, vocabulary, {}, Reasoning::kIsOpen));
    EXPECT_EQ(reasoned.status().code(), absl::StatusCode::kFailedPrecondition) << behind;
  }
  const auto sequence = (*Regex("a?(a?|a?ax)", vocabulary))->Clone();
  EXPECT_EQ(sequence->Accept(0), absl::OkStatus());
  EXPECT_EQ(sequence->Accept(0), absl::OkStatus());
  EXPECT_EQ(sequence->Accept(0).code(), absl::StatusCode::kFailedPrecondition);
}

// A full cache is left for a new one; what the sequence stands on goes with it.
TEST(TokenConstraintTest, GoesOnWhenTheCacheIsFull) {
  ConstraintLimits limits;
  limits.max_cache_bytes = 64 << 10;
  const auto begin = *Regex("([a-z]{3}[0-9]{3}){1,40}", ByteVocabulary(), limits);
  const auto sequence = begin->Clone();
  const std::string unit = "abc123";
  for (int i = 0; i < 240; ++i) {
    ASSERT_EQ(sequence->Accept(static_cast<unsigned char>(unit[i % 6])), absl::OkStatus()) << i;
    ASSERT_EQ(Allowed(*sequence).size(), static_cast<size_t>(sequence->num_allowed()));
  }
  EXPECT_EQ(Allowed(*sequence), (std::vector<int32_t>{kEnd}));
  EXPECT_EQ(Allowed(*begin).size(), 26u);
}

// The cache grows with each state and mask that is found out.
TEST(TokenConstraintTest, WhatAllTextsComeByIsKnownBeforeAnyIsWritten) {
  const auto vocabulary = ByteVocabulary({"<think>", "</think>", "\n\n"});
  constexpr int32_t kThink = 257, kThinkEnd = 258, kEmptyLine = 259;
  const auto expect_known = [&](Reasoning reasoning, const std::vector<int32_t>& ids) {
    const auto constraint = *CompileRegex("ab[xy]c", vocabulary, {}, reasoning);
    const auto begin = *MakeTokenConstraint(constraint);
    const int64_t bytes = constraint->cache_bytes();
    const auto sequence = begin->Clone();
    for (const int32_t id : ids) ASSERT_EQ(sequence->Accept(id), absl::OkStatus()) << id;
    EXPECT_EQ(Allowed(*sequence), (std::vector<int32_t>{'x', 'y'}));
    EXPECT_EQ(constraint->cache_bytes(), bytes);
    ASSERT_EQ(sequence->Accept('x'), absl::OkStatus());
    EXPECT_GT(constraint->cache_bytes(), bytes) << "what was a choice is found when it comes";
  };
  expect_known(Reasoning::kNone, {'a', 'b'});
  expect_known(Reasoning::kMayCome, {'a', 'b'});
  expect_known(Reasoning::kMayCome, {kThink, 'h', 'm', kThinkEnd, kEmptyLine, 'a', 'b'});
  expect_known(Reasoning::kIsOpen, {'h', 'm', kThinkEnd, kEmptyLine, 'a', 'b'});
  expect_known(Reasoning::kIsOpen, {'h', 'm', kThinkEnd, 'a', 'b'});
}

TEST(TokenConstraintTest, ThreadsFindTheSameMasks) {
  const auto compile = [vocabulary = ByteVocabulary({"{\"", "\":", "ab", "\\"})] {
    return *CompileJsonSchema(
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "of": {"enum": [1, 12]}},
            "required": ["name", "of"], "additionalProperties": {"type": "number"}})",
        JsonWhitespace::kFree, vocabulary);
  };
  const std::string text = R"({ "name": "ab\n\u00e9c", "of": 12, "more": -1.5e3 })";
  using Masks = std::vector<std::vector<uint32_t>>;
  const auto walk = [&text](const std::shared_ptr<const Constraint>& constraint) -> Masks {
    const auto sequence = (*MakeTokenConstraint(constraint))->Clone();
    Masks masks = {MaskOf(*sequence)};
    for (const char byte : text) {
      EXPECT_EQ(sequence->Accept(static_cast<unsigned char>(byte)), absl::OkStatus());
      masks.push_back(MaskOf(*sequence));
    }
    return masks;
  };
  const Masks expected = walk(compile());
  const auto constraint = compile();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_EQ(walk(constraint), expected); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace quire::constraint::testing
