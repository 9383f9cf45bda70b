#include "server/frontend/frontend.h"

#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/frontend/errors.h"
#include "tests/testing/collecting_sink.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using ::quire::testing::CollectingSink;
using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class FrontendTest : public ::testing::Test {
 protected:
  FrontendTest() : tokenizer_({"STOP", "\xF0\x9F", "\x98\x80"}) {
    options_.served_model_names = {"fake"};
    options_.on_finished = [this](const RequestRecord& record) {
      MutexLock lock(&mutex_);
      records_.push_back(record);
    };
  }

  Frontend& frontend() {
    if (frontend_ == nullptr) frontend_ = std::make_unique<Frontend>(engine_, tokenizer_, options_);
    return *frontend_;
  }

  static GenerateRequest TextRequest(std::string text) {
    GenerateRequest request;
    request.prompt = std::move(text);
    return request;
  }

  // Starts a request and returns its handle once the engine has it.
  uint64_t Start(GenerateRequest request) {
    const auto handle = frontend().Generate(std::move(request), sink_);
    EXPECT_TRUE(handle.ok()) << handle.status();
    submitted_ = engine_.WaitForRequest(++num_started_);
    EXPECT_EQ(submitted_.handle, *handle);
    return *handle;
  }
  void Emit(uint64_t handle, const std::string& text) {
    for (char c : text) engine_.EmitToken(handle, static_cast<unsigned char>(c));
  }
  void ExpectIdle() { EXPECT_TRUE(frontend().WaitIdle(absl::InfiniteFuture())); }

  FakeEngine engine_;
  FakeTokenizer tokenizer_;
  FrontendOptions options_;
  Mutex mutex_;
  std::vector<RequestRecord> records_;
  std::shared_ptr<CollectingSink> sink_ = std::make_shared<CollectingSink>();
  EngineRequest submitted_;
  size_t num_started_ = 0;
  std::unique_ptr<Frontend> frontend_;  // last: its threads use the rest
};

TEST_F(FrontendTest, StreamsTextIdsUsageAndTimings) {
  GenerateRequest request = TextRequest("hi");
  request.request_id = "r1";
  request.max_tokens = 3;
  const uint64_t handle = Start(request);
  EXPECT_THAT(submitted_.prompt_ids, ElementsAre(FakeTokenizer::kBos, 'h', 'i'));
  EXPECT_EQ(submitted_.params.max_tokens, 3);
  Emit(handle, "ab");
  engine_.EmitToken(handle, 'c', FinishReason::kLength);
  sink_->WaitForEnd();
  ExpectIdle();
  EXPECT_TRUE(sink_->status.ok());
  EXPECT_EQ(sink_->id, "r1");
  EXPECT_EQ(sink_->prompt_tokens, 3);
  const SequenceDelta& sequence = sink_->sequences.at(0);
  EXPECT_EQ(sequence.text, "abc");
  EXPECT_THAT(sequence.token_ids, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(sequence.finish->reason, FinishReason::kLength);
  EXPECT_EQ(sink_->usage.prompt_tokens, 3);
  EXPECT_EQ(sink_->usage.completion_tokens, 3);
  EXPECT_GE(sink_->timings.total, absl::ZeroDuration());
  MutexLock lock(&mutex_);
  ASSERT_EQ(records_.size(), 1u);
  EXPECT_EQ(records_[0].request_id, "r1");
  EXPECT_EQ(records_[0].finish, "length");
}

TEST_F(FrontendTest, StructuredOutputIsCompiledAndMayEndWithoutAStopId) {
  GenerateRequest request = TextRequest("hi");
  request.structured_output.kind = StructuredOutput::Kind::kRegex;
  request.structured_output.source = "ab";
  request.structured_output.field = "regex";
  const uint64_t handle = Start(request);
  ASSERT_NE(submitted_.constraint, nullptr);
  EXPECT_EQ(submitted_.constraint->only_token(), 'a');
  StepOutputs step;
  step.sequences.push_back(FakeEngine::MakeEvent(handle, 'a', FinishReason::kNone, 0));
  step.sequences.push_back(FakeEngine::MakeEvent(handle, 'b', FinishReason::kStop, 0));
  step.sequences.back().stop_token_id = -1;
  engine_.Emit(std::move(step));
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "ab") << "the last token is text";
  EXPECT_EQ(sink_->sequences.at(0).finish->reason, FinishReason::kStop);
  EXPECT_EQ(sink_->sequences.at(0).finish->stop, Finish::Stop::kNone);

  request.structured_output.source = "(";
  sink_ = std::make_shared<CollectingSink>();
  ASSERT_TRUE(frontend().Generate(request, sink_).ok());
  sink_->WaitForEnd();
  EXPECT_EQ(FieldOf(sink_->status), "regex");
  request.beam_width = 2;
  request.temperature = 0;
  EXPECT_EQ(FieldOf(frontend().Generate(request, sink_).status()), "regex");
}

TEST_F(FrontendTest, OutputContinuesTheTextOfThePrompt) {
  tokenizer_.drops_first_space = true;
  GenerateRequest request;
  request.prompt = std::vector<int64_t>{'h', 0xC3};  // the first half of a character
  const uint64_t handle = Start(request);
  Emit(handle, "\xA9 ");
  engine_.EmitToken(handle, 'c', FinishReason::kLength);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "\u00e9 c");
  sink_ = std::make_shared<CollectingSink>();
  const uint64_t word = Start(TextRequest("hi"));
  Emit(word, " ");
  engine_.EmitToken(word, 'w', FinishReason::kLength);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, " w");
}

TEST_F(FrontendTest, AForkGoesOnBehindTheTokensOfALiveOrFinishedRequest) {
  GenerateRequest request = TextRequest("hi");
  request.request_id = "r1";
  request.tenant = "t";
  request.cache.salt = "s";
  const uint64_t parent = Start(request);
  Emit(parent, "abc");
  sink_->WaitForWrites(3);
  const auto fork = [&](std::optional<int64_t> at, GenerateRequest more) {
    ForkRequest out;
    out.request_id = "r1";
    out.at_token = at;
    out.request = std::move(more);
    out.request.tenant = "t";
    out.request.max_tokens = 5;
    out.request.add_special_tokens = false;
    const auto handle = frontend().Fork(std::move(out), std::make_shared<CollectingSink>());
    EXPECT_TRUE(handle.ok()) << handle.status();
    return engine_.WaitForRequest(++num_started_);
  };
  const EngineRequest text = fork(5, TextRequest("xy"));
  EXPECT_THAT(text.prompt_ids, ElementsAre(FakeTokenizer::kBos, 'h', 'i', 'a', 'b', 'x', 'y'));
  EXPECT_EQ(text.fork_of.handle, parent);
  EXPECT_EQ(text.fork_of.sequence_index, 0);
  EXPECT_EQ(text.root_hash, submitted_.root_hash) << "the salt is that of the forked request";
  GenerateRequest ids;
  ids.prompt = std::vector<int64_t>{7};
  EXPECT_THAT(fork(std::nullopt, ids).prompt_ids, ElementsAre(FakeTokenizer::kBos, 'h', 'i', 'a', 'b', 'c', 7));
  EXPECT_THAT(fork(1, {}).prompt_ids, ElementsAre(FakeTokenizer::kBos));
  engine_.EmitToken(parent, FakeTokenizer::kEos, FinishReason::kStop);
  sink_->WaitForEnd();
  EXPECT_THAT(fork(std::nullopt, {}).prompt_ids,
              ElementsAre(FakeTokenizer::kBos, 'h', 'i', 'a', 'b', 'c', FakeTokenizer::kEos));
}

TEST_F(FrontendTest, WhatCannotBeForkedIsRefusedWithItsReason) {
  GenerateRequest request = TextRequest("hi");
  request.request_id = "r1";
  request.tenant = "t";
  request.cache.salt = "s";
  request.n = 2;
  Start(request);
  const auto refusal = [&](void (*spoil)(ForkRequest&)) {
    ForkRequest out;
    out.request_id = "r1";
    out.request.tenant = "t";
    spoil(out);
    return frontend().Fork(std::move(out), std::make_shared<CollectingSink>()).status();
  };
  const absl::Status unknown = refusal([](ForkRequest& f) { f.request_id = "r2"; });
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("'r2'"));
  const absl::Status foreign = refusal([](ForkRequest& f) { f.request.tenant = "u"; });
  const absl::Status odd_tenant = refusal([](ForkRequest& f) { f.request.tenant = std::string(257, 'u'); });
  EXPECT_EQ(FieldOf(odd_tenant), "x-tenant") << odd_tenant;
  EXPECT_EQ(foreign.code(), absl::StatusCode::kNotFound) << "another tenant's is as one that never was";
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.sequence = 2; })), "sequence");
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.at_token = 0; })), "at_token");
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.at_token = 4; })), "at_token");
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.request.cache.salt = "other"; })), "request.cache.salt");
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.request.n = 65; })), "sampling.n");
  EXPECT_EQ(FieldOf(refusal([](ForkRequest& f) { f.request.prompt = std::vector<int64_t>(61, 1); })), "prompt");
}

TEST_F(FrontendTest, AStopStringCutsTheTextAndEndsTheSequenceInTheEngine) {
  engine_.answers_aborts = false;
  GenerateRequest request = TextRequest("p");
  request.stop = {"nope", "END"};
  const uint64_t handle = Start(request);
  Emit(handle, "okEND");
  engine_.WaitForAborts(1);
  EXPECT_THAT(engine_.aborts(), ElementsAre(std::make_pair(handle, 0)));
  sink_->WaitForEnd();  // the client need not wait for the engine
  Emit(handle, "late");
  engine_.EmitToken(handle, -1, FinishReason::kAborted);
  ExpectIdle();
  const SequenceDelta& sequence = sink_->sequences.at(0);
  EXPECT_EQ(sequence.text, "ok");
  EXPECT_EQ(sequence.token_ids.size(), 5u);  // the tokens of the stop count, those behind it do not
  EXPECT_EQ(sink_->usage.completion_tokens, 5);
  EXPECT_EQ(sequence.finish->stop, Finish::Stop::kStopString);
  EXPECT_EQ(sequence.finish->stop_string, "END");
  EXPECT_FALSE(sink_->ended_twice());
}

TEST_F(FrontendTest, AStopStringBeatsTheEndByLengthAndByEosAndIsIncludedOnRequest) {
  for (FinishReason reason : {FinishReason::kLength, FinishReason::kStop}) {
    sink_ = std::make_shared<CollectingSink>();
    GenerateRequest request = TextRequest("p");
    request.stop = {"STO", "TOP"};
    request.include_stop_str_in_output = true;
    const uint64_t handle = Start(request);
    Emit(handle, "x");
    engine_.EmitToken(handle, FakeTokenizer::kFirstPiece, reason);  // "STOP"
    sink_->WaitForEnd();
    ExpectIdle();
    EXPECT_EQ(sink_->sequences.at(0).text, "xSTO");
    EXPECT_EQ(sink_->sequences.at(0).finish->stop_string, "STO");
  }
  EXPECT_THAT(engine_.aborts(), ElementsAre());  // the engine had ended them itself
}

TEST_F(FrontendTest, EosAndStopTokensAreNamedAndNotPartOfTheText) {
  GenerateRequest request = TextRequest("p");
  request.skip_special_tokens = false;
  uint64_t handle = Start(request);
  Emit(handle, "a");
  engine_.EmitToken(handle, FakeTokenizer::kEos, FinishReason::kStop);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "a");
  EXPECT_THAT(sink_->sequences.at(0).token_ids, ElementsAre('a', FakeTokenizer::kEos));
  EXPECT_EQ(sink_->sequences.at(0).finish->stop, Finish::Stop::kEos);
  EXPECT_EQ(sink_->sequences.at(0).finish->token_id, FakeTokenizer::kEos);

  sink_ = std::make_shared<CollectingSink>();
  request.include_stop_str_in_output = true;
  request.stop_token_ids = {'z'};
  handle = Start(request);
  Emit(handle, "a");
  engine_.EmitToken(handle, 'z', FinishReason::kStop);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "az");
  EXPECT_EQ(sink_->sequences.at(0).finish->stop, Finish::Stop::kStopToken);
}

TEST_F(FrontendTest, B093AStopStringThatSpellsAHiddenSpecialTokenWorksById) {
  GenerateRequest request = TextRequest("p");
  request.stop = {"x", "<bos>"};
  const uint64_t handle = Start(request);
  EXPECT_THAT(submitted_.params.stop_token_ids, ElementsAre(FakeTokenizer::kBos));
  Emit(handle, "a");
  engine_.EmitToken(handle, FakeTokenizer::kBos, FinishReason::kStop);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "a");
  EXPECT_EQ(sink_->sequences.at(0).finish->stop, Finish::Stop::kStopString);
  EXPECT_EQ(sink_->sequences.at(0).finish->stop_string, "<bos>");
}

TEST_F(FrontendTest, TextNeverEndsInsideACharacter) {
  const uint64_t handle = Start(TextRequest("p"));
  engine_.EmitToken(handle, FakeTokenizer::kFirstPiece + 1);  // the first half of U+1F600
  engine_.EmitToken(handle, FakeTokenizer::kFirstPiece + 2);
  engine_.EmitToken(handle, 0xE2, FinishReason::kLength);  // the beginning of another
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "\xF0\x9F\x98\x80\xEF\xBF\xBD");
  for (const std::string& text : sink_->texts) EXPECT_TRUE(utf8::IsValid(text));
}

TEST_F(FrontendTest, SequencesFinishOnTheirOwn) {
  GenerateRequest request = TextRequest("p");
  request.n = 3;
  request.stop = {"!"};
  const uint64_t handle = Start(request);
  engine_.EmitToken(handle, 'a', FinishReason::kNone, 0);
  engine_.EmitToken(handle, '!', FinishReason::kNone, 1);
  engine_.EmitToken(handle, 'c', FinishReason::kLength, 2);
  engine_.EmitToken(handle, 'b', FinishReason::kNone, 0);
  engine_.EmitToken(handle, FakeTokenizer::kEos, FinishReason::kStop, 0);
  sink_->WaitForEnd();
  ExpectIdle();
  EXPECT_THAT(engine_.aborts(), ElementsAre(std::make_pair(handle, 1)));
  EXPECT_EQ(sink_->sequences.at(0).text, "ab");
  EXPECT_EQ(sink_->sequences.at(1).text, "");
  EXPECT_EQ(sink_->sequences.at(2).text, "c");
  EXPECT_EQ(sink_->sequences.at(0).finish->stop, Finish::Stop::kEos);
  EXPECT_EQ(sink_->sequences.at(1).finish->stop, Finish::Stop::kStopString);
  EXPECT_EQ(sink_->sequences.at(2).finish->reason, FinishReason::kLength);
  EXPECT_EQ(sink_->usage.completion_tokens, 5);
}

TEST_F(FrontendTest, B079LogprobsAreOnePerTokenAlsoWhileTextIsHeldBack) {
  GenerateRequest request = TextRequest("pq");
  request.stop = {"ab-never"};
  request.logprobs = 1;
  request.prompt_logprobs = 2;
  const uint64_t handle = Start(request);
  StepOutputs step;
  step.logprobs = {{'p', -1.0f}, {'x', -0.5f}, {'q', -2.0f}, {'a', -0.25f}, {'z', -0.125f}};
  step.prompt_scores.push_back({handle, 1, 0, 2, 5});
  step.prompt_scores.push_back({handle, 2, 2, 1, 6});
  step.sequences.push_back(FakeEngine::MakeEvent(handle, 'a', FinishReason::kNone, 0));
  step.sequences.back().logprobs_begin = 3;
  step.sequences.back().logprobs_count = 2;
  step.sequences.back().rank = 2;
  engine_.Emit(step);
  step.prompt_scores.clear();
  step.sequences[0].token_id = 'b';
  step.sequences[0].finish_reason = FinishReason::kLength;
  engine_.Emit(step);
  sink_->WaitForEnd();
  ASSERT_EQ(sink_->prompt_logprobs.size(), 3u);
  EXPECT_EQ(sink_->prompt_logprobs[0].rank, 0);
  EXPECT_EQ(sink_->prompt_logprobs[1].logprob, -1.0f);
  EXPECT_EQ(sink_->prompt_logprobs[1].rank, 5);
  EXPECT_EQ(sink_->prompt_logprobs[1].top.at(0).token_id, 'x');
  EXPECT_TRUE(sink_->prompt_logprobs[2].top.empty());
  ASSERT_EQ(sink_->sequences.at(0).logprobs.size(), 2u);
  EXPECT_EQ(sink_->sequences.at(0).logprobs[0].rank, 2);
  EXPECT_EQ(sink_->sequences.at(0).logprobs[0].top.at(0).token_id, 'z');
  EXPECT_EQ(sink_->sequences.at(0).text, "ab");
}

TEST_F(FrontendTest, AnErrorOfOneSequenceFailsTheRequestOnceAndEndsTheRest) {
  GenerateRequest request = TextRequest("p");
  request.n = 2;
  const uint64_t handle = Start(request);
  StepOutputs step;
  step.sequences.push_back(FakeEngine::MakeEvent(handle, -1, FinishReason::kError, 1));
  step.sequences.back().error = absl::FailedPreconditionError("logits are not finite");
  engine_.Emit(step);
  sink_->WaitForEnd();
  ExpectIdle();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(engine_.aborts(), ElementsAre(std::make_pair(handle, -1)));
  EXPECT_FALSE(sink_->ended_twice());
}

TEST_F(FrontendTest, AnIdIsTakenWhileItsRequestIsLiveAndReadSomewhere) {
  options_.duplicate_wait = absl::ZeroDuration();
  const auto expect_refused = [this](const GenerateRequest& request) {
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(frontend().Generate(request, sink).ok());
    sink->WaitForEnd();
    EXPECT_EQ(sink->status.code(), absl::StatusCode::kAlreadyExists);
  };
  GenerateRequest request = TextRequest("p");
  request.request_id = "same";
  const uint64_t first = Start(request);
  expect_refused(request);
  // A client that is gone no longer holds its id, even before anybody cancelled.
  sink_->gone = true;
  auto third_sink = std::make_shared<CollectingSink>();
  const auto third = frontend().Generate(request, third_sink);
  ASSERT_TRUE(third.ok()) << third.status();
  engine_.WaitForRequest(2);
  // The late end of the first leaves the id to the third.
  frontend().Cancel(first);
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kCancelled);
  expect_refused(request);
  engine_.EmitToken(*third, 'a', FinishReason::kLength);
  third_sink->WaitForEnd();
  EXPECT_TRUE(frontend().Generate(request, std::make_shared<CollectingSink>()).ok());
  EXPECT_EQ(engine_.WaitForRequest(3).params.n, 1);
}

TEST_F(FrontendTest, ADuplicateWaitsForACancellationThatIsOnItsWay) {
  options_.duplicate_wait = absl::InfiniteDuration();
  GenerateRequest request = TextRequest("p");
  request.request_id = "same";
  const uint64_t first = Start(request);
  auto second_sink = std::make_shared<CollectingSink>();
  const auto second = frontend().Generate(request, second_sink);
  ASSERT_TRUE(second.ok());
  frontend().Cancel(first);
  EXPECT_EQ(engine_.WaitForRequest(2).handle, *second);
  engine_.EmitToken(*second, 'a', FinishReason::kLength);
  second_sink->WaitForEnd();
  EXPECT_TRUE(second_sink->status.ok());
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kCancelled);
  ExpectIdle();
}

TEST_F(FrontendTest, ADuplicateThatIsCancelledOrShutDownWhileItWaitsEnds) {
  options_.duplicate_wait = absl::InfiniteDuration();
  GenerateRequest request = TextRequest("p");
  request.request_id = "same";
  const uint64_t first = Start(request);
  auto second_sink = std::make_shared<CollectingSink>(), third_sink = std::make_shared<CollectingSink>();
  const auto second = frontend().Generate(request, second_sink);
  ASSERT_TRUE(second.ok());
  frontend().Cancel(*second);
  second_sink->WaitForEnd();
  EXPECT_EQ(second_sink->status.code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(frontend().Generate(request, third_sink).ok());
  frontend().Stop();
  third_sink->WaitForEnd();
  EXPECT_EQ(third_sink->status.code(), absl::StatusCode::kUnavailable);
  // Neither got that far. The first may have been on its way there when everything was stopped.
  EXPECT_THAT(engine_.aborts(), Each(Pair(first, -1)));
}

TEST_F(FrontendTest, AnAbortedIdIsUsableAtOnceAndALateAbortMeansTheNewRequest) {
  engine_.answers_aborts = false;
  options_.duplicate_wait = absl::ZeroDuration();
  GenerateRequest request = TextRequest("p");
  request.request_id = "same";
  const std::vector<std::string> ids = {"same"};
  const uint64_t first = Start(request);
  frontend().Abort(ids);
  auto second_sink = std::make_shared<CollectingSink>();
  const auto second = frontend().Generate(request, second_sink);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(engine_.WaitForRequest(2).handle, *second);
  frontend().Abort(ids);
  engine_.WaitForAborts(2);
  EXPECT_THAT(engine_.aborts(), UnorderedElementsAre(std::make_pair(first, -1), std::make_pair(*second, -1)));
  engine_.EmitToken(first, -1, FinishReason::kAborted);
  engine_.EmitToken(*second, -1, FinishReason::kAborted);
  sink_->WaitForEnd();
  second_sink->WaitForEnd();
  EXPECT_EQ(second_sink->sequences[0].finish->reason, FinishReason::kAborted);
  ExpectIdle();
}

TEST_F(FrontendTest, AbortByIdFinishesTheSequencesAndUnknownIdsAreIgnored) {
  GenerateRequest request = TextRequest("p");
  request.request_id = "a";
  request.stop = {"held"};
  const uint64_t handle = Start(request);
  Emit(handle, "xhe");
  sink_->WaitForWrites(3);
  const std::vector<std::string> ids = {"unknown", "a", "a"};
  frontend().Abort(ids);
  sink_->WaitForEnd();
  EXPECT_TRUE(sink_->status.ok());
  EXPECT_EQ(sink_->sequences.at(0).finish->reason, FinishReason::kAborted);
  EXPECT_EQ(sink_->sequences.at(0).text, "xhe");
  frontend().Abort(ids);
  ExpectIdle();
}

TEST_F(FrontendTest, RequestsThatEndBeforeTheTokenizerGotToThemNeverReachTheEngine) {
  std::latch encoding(1), go_on(1);
  tokenizer_.on_encode = [&](std::string_view text) {
    if (text != "block") return;
    encoding.count_down();
    go_on.wait();
  };
  const auto blocker = frontend().Generate(TextRequest("block"), std::make_shared<CollectingSink>());
  encoding.wait();
  auto aborted = std::make_shared<CollectingSink>(), cancelled = std::make_shared<CollectingSink>();
  GenerateRequest request = TextRequest("p");
  request.request_id = "aborted";
  request.n = 2;
  ASSERT_TRUE(frontend().Generate(request, aborted).ok());
  const auto handle = frontend().Generate(TextRequest("p"), cancelled);
  const std::vector<std::string> ids = {"aborted"};
  frontend().Abort(ids);
  frontend().Cancel(*handle);
  go_on.count_down();
  aborted->WaitForEnd();
  cancelled->WaitForEnd();
  EXPECT_EQ(aborted->sequences.at(1).finish->reason, FinishReason::kAborted);
  EXPECT_EQ(aborted->usage.completion_tokens, 0);
  EXPECT_EQ(cancelled->status.code(), absl::StatusCode::kCancelled);
  engine_.WaitForRequest(1);
  engine_.EmitToken(*blocker, 'x', FinishReason::kLength);
  ExpectIdle();
}

TEST_F(FrontendTest, AFullTokenizerIsAnAnswerWithRetryAdvice) {
  options_.max_encoding_requests = 2;
  std::latch go_on(1);
  tokenizer_.on_encode = [&](std::string_view) { go_on.wait(); };
  ASSERT_TRUE(frontend().Generate(TextRequest("a"), sink_).ok());
  ASSERT_TRUE(frontend().Generate(TextRequest("b"), sink_).ok());
  GenerateRequest request = TextRequest("c");
  request.request_id = "c";
  const absl::Status full = frontend().Generate(request, sink_).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(full).has_value());
  EXPECT_THAT(std::string(full.message()), HasSubstr("2"));
  EXPECT_EQ(frontend().num_live_requests(), 2);  // the refused one left nothing behind
  go_on.count_down();
  engine_.WaitForRequest(2);
}

TEST_F(FrontendTest, WhatTheEngineRefusesReachesTheClientWithFieldOrRetryAdvice) {
  const std::vector<std::pair<absl::Status, bool>> refusals = {{absl::ResourceExhaustedError("1024 wait"), true},
                                                               {absl::UnavailableError("draining"), true},
                                                               {absl::InvalidArgumentError("never fits"), false}};
  for (const auto& [refusal, retry] : refusals) {
    engine_.RefuseWith(refusal);
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(frontend().Generate(TextRequest("p"), sink).ok());
    sink->WaitForEnd();
    EXPECT_EQ(sink->status.code(), refusal.code());
    EXPECT_EQ(RetryDelayOf(sink->status).has_value(), retry);
    EXPECT_EQ(FieldOf(sink->status).has_value(), !retry);
    ExpectIdle();
  }
}

TEST_F(FrontendTest, AnOverLongTextSaysBothLengths) {
  ASSERT_TRUE(frontend().Generate(TextRequest(std::string(80, 'x')), sink_).ok());
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sink_->status.message()), HasSubstr("81"));
  EXPECT_THAT(std::string(sink_->status.message()), HasSubstr("64"));
}

TEST_F(FrontendTest, ATextThatCannotFitIsRefusedUnread) {
  tokenizer_.on_encode = [](std::string_view) { ADD_FAILURE() << "was tokenized"; };
  const absl::Status status = frontend().Generate(TextRequest(std::string((1 << 20) + 1, 'x')), sink_).status();
  EXPECT_EQ(FieldOf(status), "text");
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("1048577"), HasSubstr("1048576"), HasSubstr("64")));
  ExpectIdle();
}

TEST_F(FrontendTest, LongTokensMakeRoomForLongTexts) {
  FakeTokenizer tokenizer({std::string(1 << 14, 'y')});  // times 64 times 3
  Frontend frontend(engine_, tokenizer, options_);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(frontend.Generate(TextRequest(std::string(3 << 20, 'x')), sink).ok());
  sink->WaitForEnd();
  EXPECT_EQ(FieldOf(sink->status), "prompt");
  EXPECT_EQ(FieldOf(frontend.Generate(TextRequest(std::string((3 << 20) + 1, 'x')), sink).status()), "text");
}

TEST_F(FrontendTest, PastDeadlinesAreRefusedAndFutureOnesHandedOn) {
  GenerateRequest request = TextRequest("p");
  request.deadline = absl::Now() - absl::Seconds(1);
  EXPECT_EQ(frontend().Generate(request, sink_).status().code(), absl::StatusCode::kDeadlineExceeded);
  request.deadline = absl::Now() + absl::Hours(1);
  Start(request);
  EXPECT_EQ(submitted_.deadline, request.deadline);
}

TEST_F(FrontendTest, DrainRefusesNewOnesAndLetsTakenOnesFinish) {
  const uint64_t handle = Start(TextRequest("p"));
  frontend().BeginDrain();
  const absl::Status refused = frontend().Generate(TextRequest("q"), sink_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  EXPECT_FALSE(frontend().WaitIdle(absl::InfinitePast()));
  engine_.EmitToken(handle, 'a', FinishReason::kLength);
  ExpectIdle();
  sink_->WaitForEnd();
  EXPECT_TRUE(sink_->status.ok());
}

TEST_F(FrontendTest, StopEndsWhatRunsWithUnavailable) {
  Start(TextRequest("p"));
  frontend().Stop();
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelayOf(sink_->status).has_value());
  EXPECT_EQ(frontend().num_live_requests(), 0);
}

TEST_F(FrontendTest, SeedsAreRepeatableAndSaltsSeparatePrompts) {
  options_.seed = 5;
  Start(TextRequest("abcdefgh"));
  const uint64_t first_seed = submitted_.params.seed;
  const BlockHash unsalted = submitted_.root_hash;
  GenerateRequest salted = TextRequest("abcdefgh");
  salted.cache.salt = "s";
  Start(salted);
  EXPECT_NE(submitted_.params.seed, first_seed);
  EXPECT_FALSE(submitted_.root_hash == unsalted);

  FakeEngine other_engine;
  Frontend other(other_engine, tokenizer_, options_);
  ASSERT_TRUE(other.Generate(TextRequest("x"), std::make_shared<CollectingSink>()).ok());
  EXPECT_EQ(other_engine.WaitForRequest(1).params.seed, first_seed);
}

TEST_F(FrontendTest, NoTextAndNoIdsOnRequest) {
  GenerateRequest request = TextRequest("p");
  request.want_text = false;
  request.stop = {"b"};
  uint64_t handle = Start(request);
  Emit(handle, "ab");
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "");
  EXPECT_THAT(sink_->sequences.at(0).token_ids, ElementsAre('a', 'b'));
  EXPECT_EQ(sink_->sequences.at(0).finish->stop_string, "b");

  sink_ = std::make_shared<CollectingSink>();
  request.want_text = true;
  request.want_token_ids = false;
  handle = Start(request);
  Emit(handle, "ab");
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences.at(0).text, "a");
  EXPECT_THAT(sink_->sequences.at(0).token_ids, ElementsAre());
}

TEST(TenantsTest, NumbersAreForEverAndLimited) {
  Tenants tenants;
  EXPECT_EQ(*tenants.NumberOf(""), 0);
  EXPECT_EQ(tenants.Find("t1"), -1);
  for (int i = 1; i <= Tenants::kMaxTenants; ++i) EXPECT_EQ(*tenants.NumberOf("t" + std::to_string(i)), i);
  EXPECT_EQ(*tenants.NumberOf("t7"), 7);
  EXPECT_EQ(tenants.Find("t7"), 7);
  EXPECT_EQ(tenants.NameOf(7), "t7");
  const absl::Status full = tenants.NumberOf("one more").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("4096"), std::string::npos) << full;
  EXPECT_EQ(tenants.Find("one more"), -1);
}

TEST_F(FrontendTest, TokenizeAndDetokenizeCheckTheirInput) {
  std::latch done(4);
  frontend().Tokenize("hi", true, [&](const absl::StatusOr<std::vector<int32_t>>& ids) {
    EXPECT_THAT(*ids, ElementsAre(FakeTokenizer::kBos, 'h', 'i'));
    done.count_down();
  });
  frontend().Tokenize("\xFF", true, [&](const absl::StatusOr<std::vector<int32_t>>& ids) {
    EXPECT_EQ(FieldOf(ids.status()), "text");
    done.count_down();
  });
  frontend().Detokenize({FakeTokenizer::kBos, 'h', 'i'}, true, [&](const absl::StatusOr<std::string>& text) {
    EXPECT_EQ(*text, "hi");
    done.count_down();
  });
  frontend().Detokenize({1, 300}, true, [&](const absl::StatusOr<std::string>& text) {
    EXPECT_EQ(FieldOf(text.status()), "ids[1]");
    done.count_down();
  });
  done.wait();
}

}  // namespace
}  // namespace quire
