// What a matcher does beside judging texts: masks, end tokens, rollback, forks, forced text, full caches, threads.
#include <functional>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "model/constraint/token_vocabulary.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/constraint/constraint_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::constraint::testing {
namespace {

std::set<int32_t> Allowed(ConstraintMatcher* matcher, const TokenVocabulary& vocabulary) {
  std::vector<uint32_t> words(static_cast<size_t>(vocabulary.num_words()), ~0u);
  EXPECT_TRUE(matcher->FillNextTokenBitmask(absl::MakeSpan(words)).ok());
  std::set<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.num_words() * 32; ++id) {
    if ((words[id / 32] >> id % 32 & 1) != 0) ids.insert(id);
  }
  return ids;
}

// By the definition: a token is allowed if its bytes can be taken.
std::set<int32_t> AllowedOneByOne(const ConstraintMatcher& matcher, const TokenVocabulary& vocabulary) {
  std::set<int32_t> ids;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    ConstraintMatcher fork = matcher;
    const std::string_view bytes = vocabulary.TokenBytes(id);
    const bool taken = vocabulary.IsEnd(id) ? matcher.IsAccepting() : !bytes.empty() && fork.AcceptBytes(bytes).ok();
    if (taken) ids.insert(id);
  }
  return ids;
}

TEST(MatcherTest, EndTokenExactlyWhereTheTextIsComplete) {
  const auto vocabulary = ByteVocabulary({"ab", "abc"});
  const auto constraint = CompileChoices({"ab", "abcd"}, vocabulary);
  ASSERT_TRUE(constraint.ok());
  ConstraintMatcher matcher(*constraint);
  EXPECT_EQ(Allowed(&matcher, *vocabulary), (std::set<int32_t>{'a', 257, 258}));
  EXPECT_FALSE(matcher.AcceptToken(kEnd).ok());
  ASSERT_TRUE(matcher.AcceptToken(257).ok());
  EXPECT_TRUE(matcher.IsAccepting());
  EXPECT_EQ(Allowed(&matcher, *vocabulary), (std::set<int32_t>{'c', kEnd}));
  EXPECT_FALSE(matcher.AcceptToken('d').ok());
  EXPECT_FALSE(matcher.AcceptToken(-1).ok());
  EXPECT_FALSE(matcher.AcceptToken(vocabulary->size()).ok());
  ASSERT_TRUE(matcher.AcceptToken(kEnd).ok());
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_EQ(Allowed(&matcher, *vocabulary), (std::set<int32_t>{kEnd}));
  EXPECT_FALSE(matcher.AcceptToken('c').ok());
  matcher.Rollback(1);
  EXPECT_TRUE(matcher.AcceptToken('c').ok());
}

TEST(MatcherTest, ForcedTokenAndJumpForwardText) {
  const auto vocabulary = ByteVocabulary();
  const auto constraint = CompileJsonSchema(
      R"({"type":"object","properties":{"name":{"enum":["yes","no"]}},"required":["name"],"additionalProperties":false})",
      JsonWhitespace::kCompact, vocabulary);
  ASSERT_TRUE(constraint.ok());
  ConstraintMatcher matcher(*constraint);
  EXPECT_EQ(*matcher.ForcedToken(), '{');
  EXPECT_EQ(*matcher.JumpForwardText(), "{\"name\":\"");
  EXPECT_EQ(*matcher.JumpForwardText(3), "{\"n");
  ASSERT_TRUE(matcher.AcceptBytes("{\"name\":\"").ok());
  EXPECT_EQ(*matcher.ForcedToken(), std::nullopt);
  EXPECT_EQ(*matcher.JumpForwardText(), "");
  ASSERT_TRUE(matcher.AcceptBytes("y").ok());
  EXPECT_EQ(*matcher.JumpForwardText(), "es\"}");
  ASSERT_TRUE(matcher.AcceptBytes("es\"}").ok());
  EXPECT_EQ(*matcher.ForcedToken(), kEnd);
}

// Masks against the definition, along random texts, with pieces that cross all borders of the grammar.
TEST(MatcherTest, MasksAreTheTokensThatFit) {
  std::vector<std::string> pieces = {"{\"",   "\":",   "\",\"", "}}",    "]}",         " \n",  "\\u00",        "\xC3",
                                     "\xA9x", "12",    ".5",    "true",  "[[",         "],[",  "\":{\"",       "a b",
                                     "plain", "\"a\"", "null,", "-1e+9", "\"\xE4\xBD", "\\\"", "\xF0\x9F\x98", "name"};
  for (const char* end : {"", " ", " long", " long, then\",", "\xC3"})
    pieces.push_back("fifteen letters" + std::string(end));
  const auto vocabulary = ByteVocabulary(pieces);
  const std::vector<ConstraintOr> constraints = {
      CompileJsonSchema("true", JsonWhitespace::kFree, vocabulary),
      CompileJsonSchema(R"({"type":"string","pattern":"^[a-z]+-[0-9]{2,3}$"})", JsonWhitespace::kFree, vocabulary),
      CompileJsonSchema(R"({"type":"string","minLength":3})", JsonWhitespace::kFree, vocabulary),
      CompileJsonSchema(
          R"({"type":"object","properties":{"a b":{"type":"string","maxLength":20},"name":{"type":"number"}}})",
          JsonWhitespace::kFree, vocabulary),
      CompileRegex("[^\"\\\\]{0,40}", vocabulary),
      CompileJsonSchema(R"({"type":"string","maxLength":6})", JsonWhitespace::kFree, vocabulary),
      CompileRegex("[^\"\\\\]{3}|[^a\"\\\\]{5}", vocabulary),
      CompileGrammar("root ::= root \"[\" root \"]\" | [a-z12]*", vocabulary),
  };
  std::mt19937 random(3);
  for (const ConstraintOr& constraint : constraints) {
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    for (int round = 0; round < 6; ++round) {
      ConstraintMatcher matcher(*constraint);
      for (int step = 0; step < 12; ++step) {
        const std::set<int32_t> allowed = Allowed(&matcher, *vocabulary);
        ASSERT_EQ(allowed, AllowedOneByOne(matcher, *vocabulary));
        std::vector<int32_t> ids(allowed.begin(), allowed.end());
        if (ids.empty()) break;
        const int32_t id = ids[random() % ids.size()];
        ASSERT_TRUE(matcher.AcceptToken(id).ok());
        if (id == kEnd) break;
      }
    }
  }
}

// The same with a real vocabulary, whose tokens are long and many: all that makes masks cheap is at work. What is right
// is asked of a constraint of its own, which knows no masks.
TEST(MatcherTest, MasksOfARealVocabularyAreTheTokensThatFit) {
  const auto path = quire::testing::SharedTokenizerPath("smollm2");
  if (!path) GTEST_SKIP() << "no oracle data: tokenizers/smollm2";
  const auto tokenizer = LoadTokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      **tokenizer, std::vector<int32_t>{(*tokenizer)->TokenId("<|im_end|>")}, (*tokenizer)->vocab_size());
  const auto schema = [&](const char* text) { return CompileJsonSchema(text, JsonWhitespace::kFree, vocabulary); };
  const std::vector<std::function<ConstraintOr()>> compiles = {
      [&] { return schema("true"); },
      [&] { return schema(R"({"type":"object","properties":{"a":{"type":"integer"},"name":{"type":"string"}}})"); },
      [&] { return schema(R"({"type":"string","minLength":2,"maxLength":30})"); },
      [&] { return schema(R"({"type":"string","maxLength":4})"); },
      [&] { return schema(R"({"type":"string","pattern":"^[a-z]+-[0-9]{2,3}$"})"); },
      [&] { return schema(R"({"type":"array","items":{"enum":["red","green",1]},"maxItems":3})"); },
      [&] { return CompileRegex("[a-z]+( [A-Za-z]*)*", vocabulary); },
      [&] { return CompileRegex("[\\s\\S]*end|[^x]{5,}", vocabulary); },
      [&] { return CompileGrammar("root ::= \"(\" root \")\" | [^()]+ | [0-9]* \"!\"", vocabulary); },
  };
  std::mt19937 random(5);
  for (const auto& compile : compiles) {
    const ConstraintOr constraint = compile(), other = compile();
    ASSERT_TRUE(constraint.ok() && other.ok()) << constraint.status();
    ConstraintMatcher matcher(*constraint), naive(*other);
    for (int step = 0; step < 5 && !matcher.is_finished(); ++step) {
      const std::set<int32_t> allowed = Allowed(&matcher, *vocabulary);
      ASSERT_EQ(allowed, AllowedOneByOne(naive, *vocabulary));
      ASSERT_FALSE(allowed.empty());
      EXPECT_EQ((*matcher.NextTokens())->num_allowed, static_cast<int32_t>(allowed.size()));
      const int32_t id = *std::next(allowed.begin(), static_cast<int64_t>(random() % allowed.size()));
      ASSERT_TRUE(matcher.AcceptToken(id).ok());
      ASSERT_TRUE(naive.AcceptToken(id).ok());
    }
  }
}

TEST(MatcherTest, RollbackAndForksAreIndependent) {
  const auto vocabulary = ByteVocabulary();
  const auto constraint = CompileJsonSchema("true", JsonWhitespace::kFree, vocabulary);
  ASSERT_TRUE(constraint.ok());
  ConstraintMatcher matcher(*constraint);
  const std::string text = R"([{"a":[1,2,{"b":null}]},"x"])";
  std::vector<std::set<int32_t>> masks;
  for (const char c : text) {
    masks.push_back(Allowed(&matcher, *vocabulary));
    ASSERT_TRUE(matcher.AcceptToken(static_cast<unsigned char>(c)).ok());
  }
  ConstraintMatcher fork = matcher;
  for (size_t i = text.size(); i > 0; i -= 2) {
    fork.Rollback(2);
    EXPECT_EQ(Allowed(&fork, *vocabulary), masks[i - 2]);
  }
  EXPECT_EQ(fork.num_accepted(), 0);
  EXPECT_TRUE(matcher.IsAccepting());
  EXPECT_EQ(matcher.num_accepted(), static_cast<int64_t>(text.size()));
}

// A cache that holds a few states only: matchers move on to new ones and never notice.
TEST(MatcherTest, AFullCacheIsReplaced) {
  const auto vocabulary = ByteVocabulary();
  ConstraintLimits limits;
  limits.max_cache_bytes = 600'000;
  const auto small = CompileJsonSchema("true", JsonWhitespace::kFree, vocabulary, limits);
  const auto large = CompileJsonSchema("true", JsonWhitespace::kFree, vocabulary);
  ASSERT_TRUE(small.ok() && large.ok());
  ConstraintMatcher a(*small), b(*large);
  std::string text;
  for (int i = 0; i < 12; ++i) text += "[{\"k\":1,\"l\":[0.5,";
  for (const char c : text) {
    ASSERT_EQ(Allowed(&a, *vocabulary), Allowed(&b, *vocabulary));
    ASSERT_TRUE(a.AcceptToken(static_cast<unsigned char>(c)).ok());
    ASSERT_TRUE(b.AcceptToken(static_cast<unsigned char>(c)).ok());
  }
  EXPECT_GT((*large)->cache_bytes(), limits.max_cache_bytes);
  EXPECT_LT((*small)->cache_bytes(), 2 * limits.max_cache_bytes);
  a.Rollback(static_cast<int64_t>(text.size()) - 1);
  b.Rollback(static_cast<int64_t>(text.size()) - 1);
  EXPECT_EQ(Allowed(&a, *vocabulary), Allowed(&b, *vocabulary));
}

TEST(MatcherTest, WhatDoesNotFitIsAnErrorNamingTheLimit) {
  const auto vocabulary = ByteVocabulary();
  ConstraintLimits limits;
  limits.max_cache_bytes = 1;
  const auto constraint = CompileRegex("ab", vocabulary, limits);
  ASSERT_TRUE(constraint.ok());
  ConstraintMatcher matcher(*constraint);
  const absl::Status status = matcher.AcceptToken('a');
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(std::string(status.message()).find("max_cache_bytes"), std::string::npos);
  limits = {};
  limits.max_match_steps = 100;
  const auto costly = CompileRegex("(a|aa|aaa){0,300}", vocabulary, limits);
  ASSERT_TRUE(costly.ok());
  ConstraintMatcher slow(*costly);
  EXPECT_NE(std::string(slow.AcceptBytes(std::string(60, 'a')).message()).find("max_match_steps"), std::string::npos);
  EXPECT_EQ(slow.num_accepted(), 0);
}

TEST(MatcherTest, MatchersOfOneConstraintOnManyThreads) {
  const auto vocabulary = ByteVocabulary({"{\"", "\":", "[[", "]]"});
  ConstraintLimits limits;
  limits.max_cache_bytes = 200'000;
  const auto constraint = CompileJsonSchema("true", JsonWhitespace::kFree, vocabulary, limits);
  ASSERT_TRUE(constraint.ok());
  std::vector<std::thread> threads;
  std::vector<int> taken(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      ConstraintMatcher matcher(*constraint);
      std::vector<uint32_t> words(static_cast<size_t>(vocabulary->num_words()));
      for (int step = 0; step < 150; ++step) {
        if (!matcher.FillNextTokenBitmask(absl::MakeSpan(words)).ok()) return;
        int32_t id = static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary->size()));
        while ((words[id / 32] >> id % 32 & 1) == 0) id = (id + 1) % vocabulary->size();
        if (id == kEnd || !matcher.AcceptToken(id).ok()) return;
        ++taken[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : taken) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace quire::constraint::testing
