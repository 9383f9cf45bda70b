#include "server/frontend/pending_output.h"

#include <map>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

PositionLogprobs Position(int32_t rank, size_t top) {
  PositionLogprobs position;
  position.rank = rank;
  position.top.resize(top);
  return position;
}

int64_t Size(const OutputDelta& delta) {
  PendingOutput measure;
  measure.Merge(delta);
  return measure.bytes();
}

TEST(PendingOutputTest, MergesDeltasOfASequenceAndKeepsOthersApart) {
  PendingOutput pending;
  OutputDelta first, second;
  first.prompt = PromptInfo{3, 42, {}};
  first.sequences.push_back(
      {.index = 0, .text = "a", .reasoning = "", .tool_calls = {}, .token_ids = {1}, .logprobs = {}, .finish = {}});
  second.sequences.push_back({.index = 0,
                              .text = "b",
                              .reasoning = "",
                              .tool_calls = {},
                              .token_ids = {2},
                              .logprobs = {},
                              .finish = Finish{FinishReason::kLength, Finish::Stop::kNone, -1, ""}});
  second.sequences.push_back(
      {.index = 1, .text = "c", .reasoning = "", .tool_calls = {}, .token_ids = {3}, .logprobs = {}, .finish = {}});
  pending.Merge(first);
  pending.Merge(second);
  const OutputDelta all = pending.Take(1 << 20);
  EXPECT_TRUE(pending.empty());
  EXPECT_EQ(all.prompt->seed, 42);
  ASSERT_EQ(all.sequences.size(), 2u);
  EXPECT_EQ(all.sequences[0].text, "ab");
  EXPECT_EQ(all.sequences[0].token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(all.sequences[0].finish.has_value());
  EXPECT_EQ(all.sequences[1].text, "c");
}

TEST(PendingOutputTest, CutsAnyOutputIntoBoundedMessagesThatAddUp) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int64_t max_bytes = 1200 + static_cast<int64_t>(random() % 3000);
    const bool want_logprobs = random() % 2, want_ids = !want_logprobs || random() % 2;
    PendingOutput pending;
    std::map<int32_t, SequenceDelta> expected, got;
    PromptInfo expected_prompt, echoed;
    const auto prompt_positions = random() % 40;
    int32_t rank = 0;
    const int deltas = 1 + static_cast<int>(random() % 6);
    for (int d = 0; d < deltas; ++d) {
      OutputDelta delta;
      if (d == 0) {
        delta.prompt = PromptInfo{9, 5, {}};
        for (auto n = random() % 3 * 700; n > 0; --n) delta.prompt->text += random() % 2 ? "p" : "\xC3\xA9";
        for (auto n = random() % 3 * 500; n > 0; --n) delta.prompt->token_ids.push_back(static_cast<int32_t>(n));
        expected_prompt = *delta.prompt;
        for (size_t i = 0; i < prompt_positions; ++i) delta.prompt->logprobs.push_back(Position(++rank, random() % 30));
      }
      for (int32_t index = 0; index < 3; ++index) {
        SequenceDelta sequence;
        sequence.index = index;
        for (auto n = random() % 60; n > 0; --n) {
          sequence.text += random() % 2 ? "x" : "\xE2\x82\xAC";
          if (want_ids) sequence.token_ids.push_back(static_cast<int32_t>(random() % 1000));
          if (want_logprobs) sequence.logprobs.push_back(Position(++rank, random() % 20));
        }
        if (d + 1 == deltas) sequence.finish = Finish{FinishReason::kLength, Finish::Stop::kNone, -1, ""};
        SequenceDelta& all = expected[index];
        all.text += sequence.text;
        all.token_ids.insert(all.token_ids.end(), sequence.token_ids.begin(), sequence.token_ids.end());
        all.logprobs.insert(all.logprobs.end(), sequence.logprobs.begin(), sequence.logprobs.end());
        delta.sequences.push_back(std::move(sequence));
      }
      if (d + 1 == deltas) delta.usage = Usage{9, 0, 77};
      pending.Merge(std::move(delta));
    }
    size_t prompt_got = 0;
    bool last = false;
    while (!pending.empty()) {
      ASSERT_FALSE(last);
      const OutputDelta part = pending.Take(max_bytes);
      EXPECT_LE(Size(part), max_bytes);
      last = part.is_last();
      if (part.prompt) {
        EXPECT_EQ(part.prompt->prompt_tokens, 9);
        prompt_got += part.prompt->logprobs.size();
        EXPECT_TRUE(utf8::IsValid(part.prompt->text));
        echoed.text += part.prompt->text;
        echoed.token_ids.insert(echoed.token_ids.end(), part.prompt->token_ids.begin(), part.prompt->token_ids.end());
      }
      for (const SequenceDelta& sequence : part.sequences) {
        SequenceDelta& all = got[sequence.index];
        EXPECT_TRUE(utf8::IsValid(sequence.text));
        if (want_logprobs && want_ids) {
          EXPECT_EQ(sequence.token_ids.size(), sequence.logprobs.size());
        }
        EXPECT_FALSE(all.finish.has_value());
        all.text += sequence.text;
        all.token_ids.insert(all.token_ids.end(), sequence.token_ids.begin(), sequence.token_ids.end());
        all.logprobs.insert(all.logprobs.end(), sequence.logprobs.begin(), sequence.logprobs.end());
        all.finish = sequence.finish;
      }
    }
    EXPECT_TRUE(last);
    EXPECT_EQ(prompt_got, prompt_positions);
    EXPECT_EQ(echoed.text, expected_prompt.text);
    EXPECT_EQ(echoed.token_ids, expected_prompt.token_ids);
    ASSERT_EQ(got.size(), 3u);
    for (auto& [index, all] : expected) {
      EXPECT_EQ(got[index].text, all.text);
      EXPECT_EQ(got[index].token_ids, all.token_ids);
      ASSERT_EQ(got[index].logprobs.size(), all.logprobs.size());
      for (size_t i = 0; i < all.logprobs.size(); ++i) EXPECT_EQ(got[index].logprobs[i].rank, all.logprobs[i].rank);
      EXPECT_TRUE(got[index].finish.has_value());
    }
  }
}

TEST(PendingOutputTest, APositionLargerThanAMessageGoesAlone) {
  PendingOutput pending;
  OutputDelta delta;
  delta.prompt = PromptInfo{3, 0, {Position(0, 0), Position(1, 1000), Position(2, 1000)}};
  pending.Merge(std::move(delta));
  size_t messages = 0, positions = 0;
  for (; !pending.empty(); ++messages) positions += pending.Take(4096).prompt->logprobs.size();
  EXPECT_EQ(positions, 3u);
  EXPECT_EQ(messages, 3u);
}

}  // namespace
}  // namespace quire
