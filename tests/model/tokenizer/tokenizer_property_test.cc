// What holds for any text: round trips, refusal of broken UTF-8, long pieces, many threads.
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/incremental_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "tests/model/tokenizer/byte_tokenizer.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

std::string RandomText(std::mt19937* random) {
  constexpr char32_t kLimits[] = {0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000};
  std::string text;
  for (uint32_t i = (*random)() % 40; i > 0; --i) {
    const char32_t c = (*random)() % kLimits[(*random)() % std::size(kLimits)];
    if (c < 0xD800 || c > 0xDFFF) utf8::Append(c, &text);
  }
  return text;
}

TEST(TokenizerPropertyTest, DecodingWhatWasEncodedGivesTheText) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(&random);
    const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    ASSERT_EQ(tokenizer->Decode(*ids, /*skip_special_tokens=*/true), text);
  }
}

TEST(TokenizerPropertyTest, StreamedPiecesAreWholeCharactersAndAddUpToTheDecodedText) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  // Bytes that make and break characters, and the special token.
  const std::vector<int32_t> alphabet = {'a',  0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED,
                                         0x9F, 0xF0, 0x90, 0xF4, 0xFF, 259,  256};
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids) id = alphabet[random() % alphabet.size()];
    const bool skip = i % 2 == 0;
    IncrementalDecoder decoder(*tokenizer, skip);
    std::string all;
    for (const int32_t id : ids) {
      std::string piece;
      decoder.Push(id, &piece);
      ASSERT_TRUE(utf8::IsValid(piece));
      all += piece;
    }
    decoder.Flush(&all);
    ASSERT_EQ(all, tokenizer->Decode(ids, skip)) << ::testing::PrintToString(ids);
  }
}

TEST(TokenizerPropertyTest, RefusesTextThatIsNotUtf8) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  for (const std::string text : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "<s>\x80"}) {
    EXPECT_EQ(tokenizer->Encode(text, false).status().code(), absl::StatusCode::kInvalidArgument)
        << ::testing::PrintToString(text);
  }
}

TEST(TokenizerPropertyTest, IdsOutsideTheVocabularyDecodeToNothing) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->Decode({-1, 'h', 260, INT32_MAX, 'i', INT32_MIN}, false), "hi");
  EXPECT_EQ(tokenizer->TokenBytes(260), "");
  EXPECT_EQ(tokenizer->TokenBytes(0xE9), "\xE9");
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_TRUE(tokenizer->IsSpecial(259));
  EXPECT_EQ(tokenizer->TokenId("<s>"), 259);
  EXPECT_EQ(tokenizer->TokenId("<t>"), -1);
}

TEST(TokenizerPropertyTest, TakesAMegabyteInOnePiece) {
  const auto tokenizer = testing::LoadSpec(testing::ByteTokenizerSpec());
  constexpr size_t kBytes = 1 << 20;
  std::string word;
  while (word.size() < kBytes) word += "ab";
  for (const std::string& text :
       {word, std::string(kBytes, ' '), std::string(kBytes, '\n'), std::string(kBytes, 'c')}) {
    const auto ids = tokenizer->Encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(tokenizer->Decode(*ids, false), text);
  }
  EXPECT_EQ(tokenizer->Encode(word, false)->size(), kBytes / 4);
}

TEST(TokenizerPropertyTest, ManyThreadsGetTheSameIds) {
  const auto loaded = LoadTokenizer(testing::SourcePath("tests/data/tokenizers/qwen3"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Tokenizer& tokenizer = **loaded;
  std::mt19937 random(3);
  std::vector<std::string> texts(200);
  std::vector<std::vector<int32_t>> want;
  for (std::string& text : texts) {
    text = RandomText(&random) + " hello  world\n123";
    want.push_back(*tokenizer.Encode(text, true));
  }
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t at = (i + 50 * t) % texts.size();
        const auto ids = tokenizer.Encode(texts[at], true);
        if (!ids.ok() || *ids != want[at]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// BPE as its definition reads.
std::vector<std::string> NaiveBpe(std::vector<std::string> parts,
                                  const std::vector<std::pair<std::string, std::string>>& merges) {
  for (;;) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) best_rank = rank, best = i;
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

TEST(BpeTest, AgreesWithTheDefinitionInShortAndLongPieces) {
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    // Random merges over three letters, so that nearly every pair has a rank and many compete.
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    Bpe bpe({});
    for (size_t i = 0; i < tokens.size(); ++i) bpe.AddToken(tokens[i], static_cast<int32_t>(i));
    while (tokens.size() < 24) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (!bpe.AddToken(left + right, static_cast<int32_t>(tokens.size()))) continue;
      tokens.push_back(left + right);
      ASSERT_TRUE(bpe.AddMerge(left, right).ok());
      merges.emplace_back(left, right);
    }
    ASSERT_TRUE(bpe.Finish().ok());
    for (const size_t length : {0, 1, 2, 5, 31, 32, 33, 34, 150}) {
      std::string piece;
      std::vector<std::string> letters;
      for (size_t i = 0; i < length; ++i) letters.push_back(tokens[random() % 3]), piece += letters.back();
      std::vector<int32_t> ids;
      bpe.Tokenize(piece, &ids, /*sizes=*/nullptr);
      std::vector<std::string> got;
      for (const int32_t id : ids) got.push_back(tokens[id]);
      ASSERT_EQ(got, NaiveBpe(letters, merges)) << piece;
    }
  }
}

}  // namespace
}  // namespace quire
