// Files that are wrong or hold what is not built: a clean error that says where.
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/byte_tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnbuilt = absl::StatusCode::kUnimplemented;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void ExpectRefused(const std::string& text, absl::StatusCode code, const std::string& part) {
  const auto tokenizer = LoadTokenizerJson(text);
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status() << " wanted " << part;
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(part));
}

TEST(LoadTokenizerTest, NamesTheFile) {
  const std::string missing = ::testing::TempDir() + "no_such_tokenizer.json";
  EXPECT_EQ(LoadTokenizer(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(LoadTokenizer(missing).status().message()), StartsWith(missing));
  const std::string broken = WriteFile("broken_tokenizer.json", "{\"model\": ");
  EXPECT_EQ(LoadTokenizer(broken).status().code(), kInvalid);
  EXPECT_THAT(std::string(LoadTokenizer(broken).status().message()), StartsWith(broken + ": not JSON"));
  EXPECT_FALSE(LoadTokenizer(::testing::TempDir()).ok());
}

TEST(LoadTokenizerTest, ReadsAFile) {
  const std::string path = WriteFile("good_tokenizer.json", testing::ByteTokenizerSpec().dump());
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("<s>abab c", false), (std::vector<int32_t>{259, 257, ' ', 'c'}));
}

TEST(LoadTokenizerTest, RefusesWhatIsNoTokenizerJson) {
  ExpectRefused("", kInvalid, "not JSON");
  ExpectRefused("[]", kInvalid, "not a JSON object");
  ExpectRefused("{}", kInvalid, "model is missing");
  ExpectRefused("{\"model\": 3}", kInvalid, "model must be an object");
  ExpectRefused("{\"model\": \"\xFF\"}", kInvalid, "not JSON");
  ExpectRefused(std::string(1 << 20, '['), kInvalid, "nested deeper than 64");
  ExpectRefused(R"({"a": "[[[[)" + std::string(100, '[') + "\"}", kInvalid, "model is missing");
}

struct Edit {
  const char* pointer;  // RFC 6901; null: removes
  json value;
  absl::StatusCode code;
  const char* part;
};

TEST(LoadTokenizerTest, RefusesWrongFieldsByName) {
  const json split = json::parse(R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated"})");
  const auto with = [](json object, const char* pointer, const json& value) {
    object[json::json_pointer(pointer)] = value;
    return object;
  };
  const std::vector<Edit> edits = {
      {"/model/type", "Unigram", kUnbuilt, "model of type Unigram"},
      {"/model/type", 3, kInvalid, "model.type must be a string"},
      {"/model/vocab", nullptr, kInvalid, "model.vocab is missing"},
      {"/model/vocab", json::array(), kInvalid, "model.vocab must be an object"},
      {"/model/vocab/a", "x", kInvalid, "id of token 'a' must be an integer"},
      {"/model/vocab/a", 1.5, kInvalid, "id of token 'a' must be an integer"},
      {"/model/vocab/a", -1, kInvalid, "token 'a' has id -1"},
      {"/model/vocab/a", 2147483648, kInvalid, "token 'a' has id"},
      {"/model/vocab/a", 18446744073709551615u, kInvalid, "token 'a' has id"},
      {"/model/vocab/a", 16777216, kInvalid, "which must be in [0, 16777216)"},
      {"/model/vocab/a", 98, kInvalid, "have the same id 98"},
      {"/model/merges", nullptr, kInvalid, "model.merges is missing"},
      {"/model/merges", "a b", kInvalid, "model.merges must be an array"},
      {"/model/merges/0", "a  b", kInvalid, "merge 0, 'a  b'"},
      {"/model/merges/0", "ab", kInvalid, "merge 0, 'ab'"},
      {"/model/merges/0", 3, kInvalid, "model.merges must hold"},
      {"/model/merges/0", json::array({"a"}), kInvalid, "model.merges must hold"},
      {"/model/merges/0", "a x", kInvalid, "needs the token 'ax'"},
      {"/model/merges/1", json::array({"ab", "zz"}), kInvalid, "merge 1 ('ab' 'zz') needs the token 'zz'"},
      {"/model/unk_token", "<unk>", kInvalid, "unk_token '<unk>'"},
      {"/model/ignore_merges", 1, kInvalid, "model.ignore_merges must be a boolean"},
      {"/model/dropout", 0.1, kUnbuilt, "model.dropout"},
      {"/model/continuing_subword_prefix", "##", kUnbuilt, "model.continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", kUnbuilt, "model.end_of_word_suffix"},
      {"/added_tokens", json::object(), kInvalid, "added_tokens must be an array"},
      {"/added_tokens/0/id", 97, kInvalid, "have the same id 97"},
      {"/added_tokens/0/id", 4294967296, kInvalid, "token '<s>' has id 4294967296"},
      {"/added_tokens/0/id", "7", kInvalid, "added_tokens[0].id must be an integer"},
      {"/added_tokens/0/content", nullptr, kInvalid, "added_tokens[0].content is missing"},
      {"/added_tokens/0/content", "a", kInvalid, "added token 'a' has the two ids 97 and 259"},
      {"/added_tokens/0/special", "yes", kInvalid, "added_tokens[0].special must be a boolean"},
      {"/normalizer", {{"type", "Lowercase2"}}, kUnbuilt, "normalizer of type Lowercase2"},
      {"/normalizer", json::object(), kInvalid, "normalizer.type is missing"},
      {"/normalizer", {{"type", "Sequence"}}, kInvalid, "normalizer.normalizers is missing"},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, kUnbuilt, "pre_tokenizer of type BertPreTokenizer"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "X"}}}}},
       kUnbuilt,
       "pre_tokenizer.pretokenizers[0] of type X"},
      {"/pre_tokenizer", with(split, "/behavior", "Sideways"), kInvalid, "pre_tokenizer.behavior is 'Sideways'"},
      {"/pre_tokenizer", with(split, "/pattern", "a"), kInvalid, "pre_tokenizer.pattern must be an object"},
      {"/pre_tokenizer", with(split, "/pattern", json::object()), kInvalid, "pre_tokenizer.pattern.String is missing"},
      {"/pre_tokenizer", with(split, "/pattern/Regex", "("), kInvalid, "pre_tokenizer.pattern: regex does not compile"},
      {"/pre_tokenizer", with(split, "/pattern/Regex", "\\w"), kUnbuilt, "regex construct \\\\w"},
      {"/decoder", nullptr, kUnbuilt, "without a decoder"},
      {"/decoder", {{"type", "WordPiece"}}, kUnbuilt, "decoder of type WordPiece"},
      {"/post_processor", {{"type", "BertProcessing"}}, kUnbuilt, "post_processor of type BertProcessing"},
      {"/post_processor", {{"type", "TemplateProcessing"}}, kInvalid, "post_processor.single is missing"},
  };
  for (const Edit& edit : edits) {
    SCOPED_TRACE(edit.pointer);
    json spec = testing::ByteTokenizerSpec();
    spec[json::json_pointer(edit.pointer)] = edit.value;
    ExpectRefused(spec.dump(), edit.code, edit.part);
  }
}

TEST(LoadTokenizerTest, ChecksTemplates) {
  const auto load = [](const char* single, const char* ids) {
    json spec = testing::ByteTokenizerSpec();
    spec["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", json::parse(single)},
                              {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", json::parse(ids)}}}}}};
    return LoadTokenizerJson(spec.dump());
  };
  constexpr char kGood[] = R"([{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}])";
  const auto good = load(kGood, "[259, 97]");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE((*good)->adds_bos());
  EXPECT_EQ(*(*good)->Encode("b", true), (std::vector<int32_t>{259, 97, 98}));
  EXPECT_EQ(*(*good)->Encode("b", false), (std::vector<int32_t>{98}));
  EXPECT_EQ(load(kGood, "[260]").status().message(), "post_processor: there is no token with id 260");
  EXPECT_EQ(load(kGood, "[9999999999]").status().code(), kInvalid);
  EXPECT_EQ(load(kGood, "[\"<s>\"]").status().code(), kInvalid);
  EXPECT_EQ(load(R"([{"SpecialToken": {"id": "<t>"}}])", "[259]").status().code(), kInvalid);
  EXPECT_EQ(load(R"([{"Sequence": {"id": "B"}}])", "[259]").status().code(), kInvalid);
  EXPECT_EQ(load("[{}]", "[259]").status().code(), kInvalid);
  EXPECT_EQ(load("[]", "[259]").status().code(), kUnbuilt);
}

// Every truncation and many single-byte changes of a good file: an error or a tokenizer, never a crash.
TEST(LoadTokenizerTest, SurvivesDamage) {
  const std::string good = testing::ByteTokenizerSpec().dump();
  uint32_t state = 5;
  int loaded = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bad = good;
    state = state * 1664525 + 1013904223;
    const size_t at = state % bad.size();
    if (i % 4 == 0) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(state >> 20);
    }
    const auto tokenizer = LoadTokenizerJson(bad);
    if (!tokenizer.ok()) continue;
    ++loaded;
    EXPECT_TRUE((*tokenizer)->Encode("hello <s> abab", true).ok());
  }
  EXPECT_LT(loaded, 300);
}

}  // namespace
}  // namespace quire
