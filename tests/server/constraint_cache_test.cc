#include "server/frontend/constraint_cache.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/frontend/errors.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;
using ::quire::testing::FakeTokenizer;

constexpr int32_t kVocabSize = 300;  // of the logits, more than the tokenizer has

StructuredOutput Wanted(Kind kind, std::string source, std::string field = "f") {
  StructuredOutput wanted;
  wanted.kind = kind;
  wanted.source = std::move(source);
  wanted.field = std::move(field);
  return wanted;
}

// The bytes that may come first; "$" for the end.
std::string FirstOf(const TokenConstraint& constraint) {
  std::vector<uint32_t> words((kVocabSize + 31) / 32);
  constraint.FillMask(absl::MakeSpan(words));
  std::string first;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    if ((words[id / 32] >> id % 32 & 1) == 0) continue;
    first += id == FakeTokenizer::kEos ? '$' : static_cast<char>(id);
  }
  return first;
}

class ConstraintCacheTest : public ::testing::Test {
 protected:
  ConstraintCache Make(ConstraintCacheOptions options = {}) const {
    return ConstraintCache(tokenizer_, {FakeTokenizer::kEos}, kVocabSize, options);
  }
  FakeTokenizer tokenizer_;
};

TEST_F(ConstraintCacheTest, CompilesEveryKind) {
  ConstraintCache cache = Make();
  EXPECT_EQ(*cache.Get({}), nullptr);
  const auto first = [&](const StructuredOutput& wanted) {
    const auto begin = cache.Get(wanted);
    return begin.ok() ? FirstOf(**begin) : std::string(begin.status().message());
  };
  EXPECT_EQ(first(Wanted(Kind::kRegex, "[xy]?")), "xy$");
  EXPECT_EQ(first(Wanted(Kind::kGrammar, "root ::= \"a\" | \"b\" root")), "ab");
  EXPECT_EQ(first(Wanted(Kind::kJsonSchema, R"({"type": "boolean"})")), "ft");
  EXPECT_EQ(first(Wanted(Kind::kJsonObject, "")), "{");
  StructuredOutput choices = Wanted(Kind::kChoices, "");
  choices.choices = {"one", "two"};
  EXPECT_EQ(first(choices), "ot");
  choices.choices = {"onetwo"};
  EXPECT_EQ(first(choices), "o");
  EXPECT_EQ(cache.num_entries(), 6);
  EXPECT_EQ((*cache.Get(choices))->vocab_size(), kVocabSize);
  EXPECT_EQ(cache.num_entries(), 6) << "found";
}

TEST_F(ConstraintCacheTest, WhitespaceIsAChoice) {
  ConstraintCache cache = Make();
  StructuredOutput wanted = Wanted(Kind::kJsonSchema, R"({"type": "array"})");
  for (const bool compact : {false, true}) {
    wanted.compact_json = compact;
    const auto sequence = (*cache.Get(wanted))->Clone();
    EXPECT_EQ(sequence->Accept('['), absl::OkStatus());
    EXPECT_EQ(FirstOf(*sequence).find(' ') == std::string::npos, compact);
  }
}

TEST_F(ConstraintCacheTest, ErrorsNameTheClientsField) {
  ConstraintCache cache = Make();
  const auto error = [&](Kind kind, const std::string& source) {
    return cache.Get(Wanted(kind, source, "response_format.json_schema.schema")).status();
  };
  for (const auto& status :
       {error(Kind::kRegex, "("), error(Kind::kGrammar, "rule ::= \"a\""), error(Kind::kJsonSchema, "{"),
        error(Kind::kJsonSchema, R"({"not": {}})"), error(Kind::kChoices, ""), error(Kind::kRegex, "(a{1000}){1000}"),
        error(Kind::kRegex, std::string(2 << 20, 'a')), error(Kind::kRegex, std::string(20000, '('))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(FieldOf(status), "response_format.json_schema.schema") << status;
  }
  EXPECT_EQ(cache.num_entries(), 0);
}

TEST_F(ConstraintCacheTest, KeepsWhatWasUsedLastWithinItsBounds) {
  ConstraintCache cache = Make({.max_entries = 3});
  const auto get = [&](int i) { return cache.Get(Wanted(Kind::kRegex, absl::StrCat("x", i, "[0-9]*"))); };
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(get(i).ok());
    ASSERT_TRUE(get(0).ok());
    EXPECT_LE(cache.num_entries(), 3);
  }
  ConstraintCache small = Make({.max_bytes = 1});
  const auto kept = *small.Get(Wanted(Kind::kRegex, "a+"));
  ASSERT_TRUE(small.Get(Wanted(Kind::kRegex, "b+")).ok());
  EXPECT_EQ(small.num_entries(), 1) << "the latest stays, whatever it takes";
  EXPECT_EQ(kept->Clone()->Accept('a'), absl::OkStatus()) << "what is in use lives on";
}

TEST_F(ConstraintCacheTest, ThreadsShareIt) {
  ConstraintCache cache = Make({.max_entries = 4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 40; ++i) {
        const auto begin = cache.Get(Wanted(Kind::kRegex, absl::StrCat("a{", 1 + (i + t) % 6, "}")));
        ASSERT_TRUE(begin.ok()) << begin.status();
        EXPECT_EQ((*begin)->Clone()->Accept('a'), absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.num_entries(), 4);
}

}  // namespace
}  // namespace quire
