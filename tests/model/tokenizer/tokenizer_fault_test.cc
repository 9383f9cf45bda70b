// What went wrong in other engines (fault-cases.md, kinds Tokenization and Detokenization): each test has the row's id.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/incremental_decoder.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "tests/model/tokenizer/byte_tokenizer.h"
#include "tests/model/tokenizer/reference_cases.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> Reduced(const std::string& name) {
  auto tokenizer = LoadTokenizer(testing::SourcePath("tests/data/tokenizers/" + name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Ids Encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(Ids());
}

// Cases of the made-up tokenizers whose name begins so.
int CheckComponents(const std::string& prefix) {
  int checked = 0;
  for (const auto& row : testing::ReadJsonLines(testing::SourcePath("tests/data/tokenizers/components.jsonl"))) {
    if (!row.at("name").get<std::string>().starts_with(prefix)) continue;
    SCOPED_TRACE(row.at("name").get<std::string>());
    const auto tokenizer = LoadTokenizerJson(row.at("tokenizer").dump());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (!tokenizer.ok()) continue;
    for (const auto& each : row.at("cases")) testing::CheckEncodeCase(**tokenizer, each), ++checked;
  }
  return checked;
}

// In pieces of `chunk` ids, as a server that sends several tokens at once.
std::string Stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special_tokens, size_t chunk = 1) {
  IncrementalDecoder decoder(tokenizer, skip_special_tokens);
  std::string all;
  for (size_t i = 0; i < ids.size(); i += chunk) {
    std::string piece;
    for (size_t k = i; k < std::min(i + chunk, ids.size()); ++k) decoder.Push(ids[k], &piece);
    EXPECT_TRUE(utf8::IsValid(piece));
    all += piece;
  }
  decoder.Flush(&all);
  return all;
}

TEST(TokenizationFaultTest, B114LooksUpTheWholePieceBeforeMerging) {
  json spec = testing::ByteTokenizerSpec();
  spec["model"]["vocab"]["abc"] = 300;  // no merge makes it
  EXPECT_EQ(Encode(*testing::LoadSpec(spec), "abc"), (Ids{256, 'c'}));
  spec["model"]["ignore_merges"] = true;
  EXPECT_EQ(Encode(*testing::LoadSpec(spec), "abc"), (Ids{300}));
  const auto path = testing::SharedTokenizerPath("llama3_1");
  if (!path) GTEST_SKIP() << "no ../shared/tokenizers/llama3_1";
  const auto llama3 = LoadTokenizer(*path);
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  EXPECT_EQ(Encode(**llama3, " Vi\xE1\xBB\x87t"), (Ids{101798}));
}

TEST(TokenizationFaultTest, B116AppliesTheStepsOfASequenceInOrder) {
  EXPECT_GE(CheckComponents("pre_tokenizer:falcon"), 40);
}

TEST(TokenizationFaultTest, B117AStringIsLiteral) {
  const auto tokens = [](const char* kind, const char* pattern) {
    json spec = testing::ByteTokenizerSpec();
    spec["model"]["merges"] = json::array({"a b", "c c"});
    spec["model"]["vocab"]["a."] = 300;
    spec["model"]["merges"].push_back("a .");
    spec["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers",
                              {{{"type", "Split"}, {"pattern", {{kind, pattern}}}, {"behavior", "Isolated"}},
                               {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return Encode(*testing::LoadSpec(spec), "aba.a.");
  };
  EXPECT_EQ(tokens("String", "."), (Ids{256, 'a', '.', 'a', '.'}));
  EXPECT_EQ(tokens("Regex", "."), (Ids{'a', 'b', 'a', '.', 'a', '.'}));
  EXPECT_EQ(tokens("Regex", "\\."), tokens("String", "."));
}

// Digests of the reference's ids of random strings of rare characters (make_random_digests.py).
TEST(TokenizationFaultTest, B118AgreesOnTenThousandRandomStrings) {
  const json golden = testing::ReadJson(testing::SourcePath("tests/data/tokenizers/random_digests.json"));
  const auto alphabet = golden.at("alphabet").get<std::vector<std::string>>();
  const int per_digest = golden.at("texts_a_digest").get<int>();
  int checked = 0;
  for (const auto& row : testing::ReadJsonLines(testing::SourcePath("tests/data/tokenizers/components.jsonl"))) {
    const auto name = row.at("name").get<std::string>();
    if (!golden.at("digests").contains(name)) continue;
    const auto tokenizer = LoadTokenizerJson(row.at("tokenizer").dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    uint64_t state = 1;
    const auto draw = [&state](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    for (const auto& want : golden.at("digests").at(name)) {
      uint64_t digest = 14695981039346656037u;
      const auto add = [&digest](uint64_t value) { digest = (digest ^ value) * 1099511628211u; };
      for (int i = 0; i < per_digest; ++i, ++checked) {
        std::string text;
        for (uint64_t n = draw(16) + 1; n > 0; --n) text += alphabet[draw(alphabet.size())];
        for (const int32_t id : Encode(**tokenizer, text)) add(static_cast<uint64_t>(id));
        add(0xFFFFFF);
      }
      ASSERT_EQ(digest, want.get<uint64_t>()) << name << " after " << checked;
    }
  }
  EXPECT_GE(checked, 10000);
}

TEST(TokenizationFaultTest, B119NormalizesAsDeclared) {
  const auto tokenizer = Reduced("qwen3");
  EXPECT_EQ(Encode(*tokenizer, "caf\xC3\xA9"), Encode(*tokenizer, "cafe\xCC\x81"));
  EXPECT_GE(CheckComponents("normalizer:"), 300);
}

TEST(TokenizationFaultTest, B120AnyShortTextIsAnswered) {
  const std::vector<std::string> parts = {
      ":",           "/",  "7",  "12", "'",        "\"",           "a",        "Z",
      " ",           "\n", "\\", "<",  "\xC3\xA9", "\xE6\x9D\xB1", "\xD0\xB6", "\xF0\x9F\x98\x80",
      "\xE2\x80\xA9"};
  for (const char* name : {"smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    std::mt19937 random(12);
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (uint32_t n = random() % 8; n > 0; --n) text += parts[random() % parts.size()];
      const auto ids = tokenizer->Encode(text, true);
      ASSERT_TRUE(ids.ok()) << ids.status();
      ASSERT_TRUE(utf8::IsValid(tokenizer->Decode(*ids, true)));
    }
  }
}

TEST(TokenizationFaultTest, B121EveryCombinationOfAddedTokenFlags) { EXPECT_GE(CheckComponents("added:"), 32 * 40); }

TEST(TokenizationFaultTest, B122RawAddedTokensAreFoundBeforeNormalizing) {
  json spec = testing::ByteTokenizerSpec();
  spec["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "</s>"}}}, {"content", "ab"}};
  spec["added_tokens"][0]["content"] = "</s>";
  EXPECT_EQ(Encode(*testing::LoadSpec(spec), "you.</s>"), (Ids{'y', 'o', 'u', '.', 259}));
  spec["normalizer"] = {{"type", "Lowercase"}};
  spec["added_tokens"][0]["content"] = "</S>";
  EXPECT_EQ(Encode(*testing::LoadSpec(spec), "X.</S>"), (Ids{'x', '.', 259}));
  EXPECT_EQ(Encode(*testing::LoadSpec(spec), "</s>"), (Ids{'<', '/', 's', '>'}));
}

TEST(TokenizationFaultTest, B123EverySegmentGetsThePrefixSpace) {
  json spec = testing::ByteTokenizerSpec();
  spec["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = testing::LoadSpec(spec);
  EXPECT_EQ(Encode(*tokenizer, "xy<s>z"), Encode(*tokenizer, " xy<s> z"));
  EXPECT_EQ(Encode(*tokenizer, "xy<s>z"), (Ids{' ', 'x', 'y', 259, ' ', 'z'}));
  const auto mistral = Reduced("mistral_v1");
  const int32_t hello = 22557;  // with the mark
  EXPECT_EQ(Encode(*mistral, "Hello</s>Hello"), (Ids{hello, 2, hello}));
}

TEST(TokenizationFaultTest, B125TextThatIsNotUtf8IsAnInvalidArgument) {
  for (const char* name : {"smollm2", "mistral_v1"}) {
    const auto tokenizer = Reduced(name);
    for (const std::string text : {"\xE6\xAD", "\xC4\xE3\xBA\xC3", "a\xFF", "<s>\x80"}) {
      EXPECT_EQ(tokenizer->Encode(text, true).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(TokenizationFaultTest, B127ByteTokensBothWays) {
  for (const char* name : {"mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    for (const std::string text : {"a\nb", "a\tb", "\n\n", "\xF0\x9F\xA6\x80\x01", "x\r\ny"}) {
      EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text), true), text) << name;
      EXPECT_EQ(Stream(*tokenizer, Encode(*tokenizer, text), true), text) << name;
    }
  }
}

TEST(DetokenizationFaultTest, B100TheFirstSpaceGoesOnce) {
  const auto tokenizer = Reduced("mistral_v1");
  constexpr int32_t kMark = 28705, kHello = 22557;
  for (const auto& [ids, text] : std::vector<std::pair<Ids, std::string>>{
           {{kHello}, "Hello"}, {{kMark, kHello}, " Hello"}, {{kMark, kMark, kHello}, "  Hello"}, {{kMark}, ""}}) {
    EXPECT_EQ(tokenizer->Decode(ids, true), text);
    EXPECT_EQ(Stream(*tokenizer, ids, true), text);
    IncrementalDecoder after(*tokenizer, true);
    after.Continue({kHello});
    std::string more;
    for (const int32_t id : ids) after.Push(id, &more);
    EXPECT_EQ(more, " " + text);
  }
}

TEST(DetokenizationFaultTest, B101NothingThatWasSentIsCleanedUp) {
  const auto tokenizer = Reduced("llama3_1");
  const Ids ids = Encode(*tokenizer, "a    . b , c n't");
  const std::string all = tokenizer->Decode(ids, true);
  EXPECT_EQ(all, "a    . b , c n't");
  for (size_t n = 0; n <= ids.size(); ++n) {
    EXPECT_TRUE(all.starts_with(tokenizer->Decode(absl::MakeConstSpan(ids).first(n), true)));
  }
}

TEST(DetokenizationFaultTest, B102AnyChunkSizeGivesTheSameText) {
  for (const char* name : {"smollm2", "qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    const Ids ids = Encode(*tokenizer, "the  quick 12 \xF0\x9F\x98\x80\xE4\xBD\xA0 fox,\n\n  end ");
    for (size_t chunk = 1; chunk <= 8; ++chunk) {
      EXPECT_EQ(Stream(*tokenizer, ids, true, chunk), tokenizer->Decode(ids, true)) << name << " " << chunk;
    }
  }
}

TEST(DetokenizationFaultTest, B103AnySequenceOfIdsStreams) {
  for (const char* name : {"smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    Ids alphabet = {-1, INT32_MAX, tokenizer->vocab_size()};
    for (int32_t id = 0; id < tokenizer->vocab_size() && alphabet.size() < 700; ++id) {
      if (tokenizer->TokenBytes(id).data() != nullptr) alphabet.push_back(id);
    }
    std::mt19937 random(13);
    for (int i = 0; i < 500; ++i) {
      Ids ids(random() % 30);
      for (int32_t& id : ids) id = alphabet[random() % alphabet.size()];
      const std::string streamed = Stream(*tokenizer, ids, i % 2 == 0);
      const std::string decoded = tokenizer->Decode(ids, i % 2 == 0);
      ASSERT_TRUE(utf8::IsValid(streamed));
      // A run of byte tokens that breaks late was sent in part.
      if (!tokenizer->join_rules().byte_runs) {
        ASSERT_EQ(streamed, decoded);
      }
    }
  }
}

TEST(DetokenizationFaultTest, B105AReplacementCharacterIsText) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  const Ids ids = {'a', 0xEF, 0xBF, 0xBD};
  EXPECT_EQ(Stream(*tokenizer, ids, true), "a\xEF\xBF\xBD");
  EXPECT_EQ(Stream(*tokenizer, {'a', 0xEF, 0xBF}, true), "a\xEF\xBF\xBD");
}

TEST(DetokenizationFaultTest, B107UnfinishedRunsAtTheEndAreTheSameBothWays) {
  const auto bytes = testing::LoadSpec(testing::ByteTokenizerSpec());
  for (const Ids& ids : {Ids{'a', 0xE4, 0xBD}, Ids{0xF0, 0x9F, 0x98, 259}, Ids{0xC3}}) {
    EXPECT_EQ(Stream(*bytes, ids, true), bytes->Decode(ids, true));
  }
  const auto mistral = Reduced("mistral_v1");
  const auto byte = [](int value) { return 3 + value; };
  for (const Ids& ids :
       {Ids{byte(0xE4), byte(0xBD)}, Ids{22557, byte(0xF0), byte(0x9F), byte(0x98), 2}, Ids{byte(0xC3)}}) {
    EXPECT_EQ(Stream(*mistral, ids, true), mistral->Decode(ids, true));
  }
}

TEST(DetokenizationFaultTest, B108TheBytesOfTokensAreThoseOfTheText) {
  for (const char* name : {"smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    const std::string text = "\xE4\xBD\xA0\xE5\xA5\xBD, the \xC3\xA9t\xC3\xA9\n";
    std::string bytes;
    for (const int32_t id : Encode(*tokenizer, text)) bytes += tokenizer->TokenBytes(id);
    EXPECT_EQ(bytes, (std::string(name) == "mistral_v1" ? " " : "") + text) << name;
  }
}

TEST(DetokenizationFaultTest, B110NoMarkersOfTheAlphabetInText) {
  for (const char* name : {"smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = Reduced(name);
    const std::string text = tokenizer->Decode(Encode(*tokenizer, "the end\nand  more\t"), true);
    for (const char* marker : {"\xC4\xA0", "\xC4\x8A", "\xC4\x89", "\xE2\x96\x81", "<0x"}) {
      EXPECT_EQ(text.find(marker), std::string::npos) << name;
    }
  }
}

TEST(DetokenizationFaultTest, B111SpecialTokensAreSkippedOnRequest) {
  for (const char* name : {"llama3_1", "mistral_v1"}) {
    const auto tokenizer = Reduced(name);
    const auto ids = tokenizer->Encode("the", /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(Stream(*tokenizer, *ids, true), "the") << name;
    EXPECT_TRUE(Stream(*tokenizer, *ids, false).starts_with("<")) << name;
  }
}

}  // namespace
}  // namespace quire
