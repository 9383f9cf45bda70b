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
      {"/truncation", json::object(), kUnbuilt, "truncation"},
      {"/padding", json::object(), kUnbuilt, "padding"},
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

// The key-value part of a GGUF file, version 3.
class GgufBuilder {
 public:
  GgufBuilder& String(const std::string& key, const std::string& value) {
    Key(key, 8);
    return Text(value);
  }
  GgufBuilder& Strings(const std::string& key, const std::vector<std::string>& values) {
    Array(key, 8, values.size());
    for (const std::string& value : values) Text(value);
    return *this;
  }
  GgufBuilder& Ints(const std::string& key, const std::vector<int32_t>& values) {
    Array(key, 5, values.size());
    for (const int32_t value : values) Number(value);
    return *this;
  }
  GgufBuilder& Uint(const std::string& key, uint32_t value) {
    Key(key, 4);
    return Number(value);
  }
  GgufBuilder& Bool(const std::string& key, bool value) {
    Key(key, 7);
    return Number(static_cast<uint8_t>(value));
  }
  std::string File() const {
    GgufBuilder head;
    head.Number(uint32_t{0x46554747}).Number(uint32_t{3}).Number(uint64_t{0}).Number(num_keys_);
    return head.bytes_ + bytes_;
  }

 private:
  template <typename T>
  GgufBuilder& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBuilder& Text(const std::string& text) {
    Number(static_cast<uint64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  void Key(const std::string& key, uint32_t type) {
    Text(key).Number(type);
    ++num_keys_;
  }
  void Array(const std::string& key, uint32_t type, uint64_t count) {
    Key(key, 9);
    Number(type).Number(count);
  }

  uint64_t num_keys_ = 0;
  std::string bytes_;
};

struct GgufTokenizer {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens = {"a", "b", "ab", "<s>", "<u>"};
  std::vector<int32_t> types = {1, 1, 1, 3, 4};
  std::vector<std::string> merges = {"a b"};
  uint32_t bos = 3;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const GgufTokenizer& parts) {
  GgufBuilder file;
  file.String("general.architecture", "llama").String("tokenizer.ggml.model", parts.model);
  if (!parts.pre.empty()) file.String("tokenizer.ggml.pre", parts.pre);
  file.Strings("tokenizer.ggml.tokens", parts.tokens).Ints("tokenizer.ggml.token_type", parts.types);
  file.Strings("tokenizer.ggml.merges", parts.merges).Uint("tokenizer.ggml.bos_token_id", parts.bos);
  file.Bool("tokenizer.ggml.add_bos_token", true);
  return LoadTokenizer(WriteFile("tokenizer_test.gguf", file.File()));
}

TEST(LoadGgufTokenizerTest, ReadsOne) {
  const auto tokenizer = Load({});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("ab<u>a<s>", true), (std::vector<int32_t>{3, 2, 4, 0, 3}));
  EXPECT_EQ((*tokenizer)->Decode({3, 2, 4, 0}, /*skip_special_tokens=*/true), "ab<u>a");
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_TRUE((*tokenizer)->IsSpecial(3));
  EXPECT_FALSE((*tokenizer)->IsSpecial(4));
}

TEST(LoadGgufTokenizerTest, RefusesWhatIsWrong) {
  const auto expect = [](const GgufTokenizer& parts, absl::StatusCode code, const std::string& part) {
    const auto tokenizer = Load(parts);
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status() << " wanted " << part;
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(part));
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer_test.gguf"));
  };
  const auto changed = [](auto change) {
    GgufTokenizer parts;
    change(&parts);
    return parts;
  };
  using G = GgufTokenizer;
  expect(changed([](G* g) { g->model = "t5"; }), kUnbuilt, "tokenizer.ggml.model 't5'");
  expect(changed([](G* g) { g->pre = "jais"; }), kUnbuilt, "tokenizer.ggml.pre 'jais'");
  expect(changed([](G* g) { g->pre = ""; }), kUnbuilt, "without tokenizer.ggml.pre");
  expect(changed([](G* g) { g->types.pop_back(); }), kInvalid, "tokenizer.ggml.token_type has 4 elements");
  expect(changed([](G* g) { g->types[1] = 9; }), kInvalid, "tokenizer.ggml.token_type[1] is 9");
  expect(changed([](G* g) { g->tokens[1] = "\xFF"; }), kInvalid, "'tokenizer.ggml.tokens': string is not valid UTF-8");
  expect(changed([](G* g) { g->tokens[1] = "a"; }), kInvalid, "token 'a' has the two ids 0 and 1");
  expect(changed([](G* g) { g->tokens[2] = "x"; }), kInvalid, "needs the token 'ab'");
  expect(changed([](G* g) { g->merges[0] = "ab"; }), kInvalid, "merge 0, 'ab'");
  expect(changed([](G* g) { g->bos = 5; }), kInvalid, "tokenizer.ggml.bos_token_id is 5");
}

}  // namespace
}  // namespace quire
