// Stops as public fault reports found them broken elsewhere, at the point where events of the engine become text.

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/frontend/errors.h"
#include "server/frontend/request_stream.h"
#include "server/frontend/validator.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using ::quire::testing::FakeTokenizer;

class StopFaultsTest : public ::testing::Test {
 protected:
  // What a client reads of these tokens, the last of which ends the sequence so; nullopt: the stop came before that.
  struct Read {
    std::string text;
    Finish finish;
    int32_t completion_tokens = 0;
  };
  Read Run(const std::vector<int32_t>& tokens, FinishReason end, const SamplingParams& params) {
    StreamOptions options;
    options.params = params;
    options.arrival = absl::UnixEpoch();
    RequestStream stream(tokenizer_, options);
    Read read;
    for (size_t i = 0; i < tokens.size() && !stream.all_finished(); ++i) {
      SequenceOutput event;
      event.token_id = tokens[i];
      event.finish_reason = i + 1 < tokens.size() ? FinishReason::kNone : end;
      event.stop_token_id = end == FinishReason::kStop ? tokens[i] : -1;
      stream.AddOutput(event, {}, EndCause::kNone);
      const std::optional<OutputDelta> delta = stream.Take();
      if (!delta || delta->sequences.empty()) continue;
      read.text += delta->sequences[0].text;
      if (delta->sequences[0].finish) read.finish = *delta->sequences[0].finish;
    }
    read.completion_tokens = stream.usage().completion_tokens;
    return read;
  }
  static std::vector<int32_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

  const FakeTokenizer tokenizer_{{"...", " seven", "jury"}};
  static constexpr int32_t kDots = FakeTokenizer::kFirstPiece, kSeven = kDots + 1, kJury = kDots + 2;
};

TEST_F(StopFaultsTest, B086TheStopTextIsLeftOutUnlessAskedFor) {
  SamplingParams params;
  params.stop_strings = {"7"};
  EXPECT_EQ(Run(Bytes("5 6 7 8"), FinishReason::kLength, params).text, "5 6 ");
  params.include_stop_str_in_output = true;
  const Read read = Run(Bytes("5 6 7 8"), FinishReason::kLength, params);
  EXPECT_EQ(read.text, "5 6 7");
  EXPECT_EQ(read.finish.stop_string, "7");
}

TEST_F(StopFaultsTest, B087AStopThatEndsInsideATokenCutsItsTextAndTheTokenCounts) {
  SamplingParams params;
  params.stop_strings = {".."};
  std::vector<int32_t> tokens = Bytes("so");
  tokens.push_back(kDots);
  Read read = Run(tokens, FinishReason::kNone, params);
  EXPECT_EQ(read.text, "so");
  EXPECT_EQ(read.completion_tokens, 3);
  params.include_stop_str_in_output = true;
  EXPECT_EQ(Run(tokens, FinishReason::kNone, params).text, "so..");
  params.stop_strings = {" se"};
  tokens.back() = kSeven;
  read = Run(tokens, FinishReason::kLength, params);  // in the step that ends it by length
  EXPECT_EQ(read.text, "so se");
  EXPECT_EQ(read.finish.reason, FinishReason::kStop);
}

// An end id that is also an explicit stop id, hidden or shown: no character of the text before it is lost.
TEST_F(StopFaultsTest, B088AHiddenStopTokenTakesNoTextWithIt) {
  for (const bool skip : {true, false}) {
    for (const bool include : {true, false}) {
      SamplingParams params;
      params.skip_special_tokens = skip;
      params.include_stop_str_in_output = include;
      std::vector<int32_t> tokens = Bytes("in");
      tokens.push_back(kJury);
      const std::string plain = Run(tokens, FinishReason::kLength, params).text;
      EXPECT_EQ(plain, "injury");
      tokens.push_back(FakeTokenizer::kEos);
      params.stop_token_ids = {FakeTokenizer::kEos};
      const Read read = Run(tokens, FinishReason::kStop, params);
      EXPECT_EQ(read.text, plain + (include && !skip ? "<eos>" : ""));
      EXPECT_EQ(read.finish.stop, Finish::Stop::kStopToken);
      EXPECT_EQ(read.finish.token_id, FakeTokenizer::kEos);
    }
  }
}

TEST_F(StopFaultsTest, B072StopIdsOutsideTheVocabularyAreRefused) {
  RequestLimits limits;
  limits.served_model_names = {"m"};
  limits.vocab_size = 300;
  limits.max_model_len = 32;
  for (const int64_t id : {int64_t{300}, int64_t{301}, int64_t{2147483647}, int64_t{-1}}) {
    GenerateRequest request;
    request.prompt = std::string("p");
    request.stop_token_ids = {299, id};
    request.min_tokens = 5;
    const absl::Status status = Validator(limits).Validate(request).status();
    EXPECT_EQ(FieldOf(status), "stopping.stop_token_ids[1]");
    EXPECT_NE(status.message().find("[0, 299]"), absl::string_view::npos) << status;
    request.stop_token_ids = {299};
    EXPECT_TRUE(Validator(limits).Validate(request).ok());
  }
}

TEST_F(StopFaultsTest, B094EmptyStopsAreRefusedByName) {
  RequestLimits limits;
  limits.served_model_names = {"m"};
  limits.vocab_size = 300;
  limits.max_model_len = 32;
  for (const std::vector<std::string>& stops : {std::vector<std::string>{""}, {"a", ""}}) {
    GenerateRequest request;
    request.prompt = std::string("p");
    request.stop = stops;
    EXPECT_EQ(FieldOf(Validator(limits).Validate(request).status()),
              "stopping.stop[" + std::to_string(stops.size() - 1) + "]");
  }
}

// A run of tokens that ends the sequence: what was held back comes, and the token is text.
TEST_F(StopFaultsTest, ARepetitionEndsWithAllOfItsText) {
  SamplingParams params;
  params.stop_strings = {"aaaa"};
  const Read read = Run(Bytes("xaaa"), FinishReason::kRepetition, params);
  EXPECT_EQ(read.text, "xaaa");
  EXPECT_EQ(read.finish.reason, FinishReason::kRepetition);
}

}  // namespace
}  // namespace quire
