#include "server/frontend/token_memory.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<TokenRecord> Record(const std::string& id, int32_t prompt_tokens, const std::string& tenant = "") {
  return std::make_shared<TokenRecord>(TokenRecord::Origin{id, tenant, "salt", 1},
                                       std::vector<int32_t>(prompt_tokens, 7), 2);
}

TEST(TokenMemoryTest, KnowsPromptAndOutputOfEachSequence) {
  TokenMemory memory(100);
  const auto record = Record("a", 2);
  memory.Begin(record);
  record->Append(0, 1);
  record->Append(1, 5);
  record->Append(0, 2);
  const auto found = memory.Find("", "a");
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->Tokens(0), ElementsAre(7, 7, 1, 2));
  EXPECT_THAT(found->Tokens(1), ElementsAre(7, 7, 5));
  EXPECT_EQ(found->num_tokens(), 5);
  EXPECT_EQ(found->num_sequences(), 2);
}

TEST(TokenMemoryTest, AnotherTenantsRequestIsUnknown) {
  TokenMemory memory(100);
  memory.Begin(Record("a", 2, "t1"));
  EXPECT_NE(memory.Find("t1", "a"), nullptr);
  EXPECT_EQ(memory.Find("t2", "a"), nullptr);
  EXPECT_EQ(memory.Find("", "a"), nullptr);
  memory.Begin(Record("a", 5, "t2"));
  EXPECT_EQ(memory.Find("t1", "a")->num_tokens(), 2);
}

TEST(TokenMemoryTest, FinishedOnesAreKeptUpToTheLimitTheLatestLongest) {
  TokenMemory memory(10);
  std::vector<std::shared_ptr<TokenRecord>> records;
  for (int32_t i = 0; i < 5; ++i) {
    records.push_back(Record(std::to_string(i), 4));
    memory.Begin(records.back());
  }
  for (int32_t i = 0; i < 4; ++i) memory.Finish(records[i]);
  EXPECT_EQ(memory.Find("", "0"), nullptr);
  EXPECT_EQ(memory.Find("", "1"), nullptr);
  EXPECT_NE(memory.Find("", "2"), nullptr);
  EXPECT_NE(memory.Find("", "3"), nullptr);
  EXPECT_NE(memory.Find("", "4"), nullptr) << "lives";
  const auto large = Record("large", 11);
  memory.Begin(large);
  EXPECT_NE(memory.Find("", "large"), nullptr);
  memory.Finish(large);
  EXPECT_EQ(memory.Find("", "large"), nullptr);
  EXPECT_EQ(memory.Find("", "3"), nullptr);
  EXPECT_NE(memory.Find("", "4"), nullptr);
}

TEST(TokenMemoryTest, ALaterRequestTakesTheId) {
  TokenMemory memory(10);
  const auto first = Record("a", 3), second = Record("a", 4), third = Record("a", 5);
  memory.Begin(first);
  memory.Finish(first);
  memory.Begin(second);
  EXPECT_EQ(memory.Find("", "a"), second);
  memory.Begin(third);
  memory.Finish(second);  // ends late: it is not the one meant any more
  EXPECT_EQ(memory.Find("", "a"), third);
  memory.Finish(third);
  memory.Finish(first);
  EXPECT_EQ(memory.Find("", "a"), third);
}

TEST(TokenMemoryTest, ALimitOfZeroKeepsLiveOnesOnly) {
  TokenMemory memory(0);
  const auto record = Record("a", 1);
  memory.Begin(record);
  EXPECT_NE(memory.Find("", "a"), nullptr);
  memory.Finish(record);
  EXPECT_EQ(memory.Find("", "a"), nullptr);
}

}  // namespace
}  // namespace quire
