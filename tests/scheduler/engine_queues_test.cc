#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/engine_inbox.h"
#include "scheduler/engine_outputs.h"
#include "scheduler/output_ring.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EngineRequest Request(uint64_t handle, int num_tokens, int n = 1) {
  EngineRequest request;
  request.handle = handle;
  request.prompt_ids.assign(num_tokens, 1);
  request.params.n = n;
  return request;
}

void Write(OutputRing& ring, uint64_t handle, bool* waited) {
  ring.BeginWrite(waited)->sequences.push_back({.handle = handle});
  ring.Publish();
}

std::vector<uint64_t> Handles(const StepOutputs& outputs) {
  std::vector<uint64_t> handles;
  for (const SequenceOutput& event : outputs.sequences) handles.push_back(event.handle);
  return handles;
}

TEST(OutputRingTest, KeepsOrderAndEndsWhenClosed) {
  OutputRing ring;
  bool waited = false;
  for (uint64_t i = 0; i < 4; ++i) Write(ring, i, &waited);
  ring.Close();
  for (uint64_t i = 0; i < 4; ++i) {
    const StepOutputs* outputs = ring.Pop();
    ASSERT_NE(outputs, nullptr);
    EXPECT_THAT(Handles(*outputs), ElementsAre(i));
    ring.Release();
  }
  EXPECT_EQ(ring.Pop(), nullptr);
  EXPECT_FALSE(waited);
}

TEST(OutputRingTest, WriterWaitsForASlowReaderAndLosesNothing) {
  OutputRing ring;
  std::vector<uint64_t> read;
  bool waited = false;
  std::thread writer([&] {
    for (uint64_t i = 0; i < 1000; ++i) Write(ring, i, &waited);
    ring.Close();
  });
  while (const StepOutputs* outputs = ring.Pop()) {
    for (uint64_t handle : Handles(*outputs)) read.push_back(handle);
    ring.Release();
  }
  writer.join();
  ASSERT_EQ(read.size(), 1000u);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(read[i], i);
}

TEST(OutputRingTest, StopWaitingSendsTheRestToTheSpareSlot) {
  OutputRing ring;
  bool waited = false;
  for (uint64_t i = 0; i < 4; ++i) Write(ring, i, &waited);
  EXPECT_FALSE(waited);
  std::thread writer([&] {
    for (uint64_t i = 4; i < 7; ++i) Write(ring, i, &waited);  // waits until the next line, or comes after it
    ring.Close();
  });
  ring.StopWaiting();
  writer.join();
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_THAT(Handles(*ring.Pop()), ElementsAre(i));
    ring.Release();
  }
  EXPECT_THAT(Handles(*ring.Pop()), ElementsAre(4, 5, 6));
  ring.Release();
  EXPECT_EQ(ring.Pop(), nullptr);
}

TEST(EngineOutputsTest, DealsOutByHandleWithLogprobs) {
  EngineOutputs outputs(2);
  StepOutputs step;
  step.logprobs = {{10, -1.f}, {11, -2.f}, {12, -3.f}, {13, -4.f}};
  step.prompt_scores = {{.handle = 3, .position = 1, .logprobs_begin = 3, .logprobs_count = 1}};
  step.sequences = {{.handle = 2, .logprobs_begin = 0, .logprobs_count = 2},
                    {.handle = 3, .logprobs_begin = 2, .logprobs_count = 1},
                    {.handle = 4}};
  EXPECT_FALSE(outputs.Publish(step));
  outputs.Close();

  const StepOutputs* even = outputs.ring(0).Pop();
  ASSERT_NE(even, nullptr);
  EXPECT_THAT(Handles(*even), ElementsAre(2, 4));
  ASSERT_EQ(even->logprobs.size(), 2u);
  EXPECT_EQ(even->logprobs[1].token_id, 11);
  const StepOutputs* odd = outputs.ring(1).Pop();
  ASSERT_NE(odd, nullptr);
  EXPECT_THAT(Handles(*odd), ElementsAre(3));
  ASSERT_EQ(odd->prompt_scores.size(), 1u);
  EXPECT_EQ(odd->logprobs[odd->prompt_scores[0].logprobs_begin].token_id, 13);
  EXPECT_EQ(odd->logprobs[odd->sequences[0].logprobs_begin].token_id, 12);
}

TEST(EngineInboxTest, LimitsWaitingRequests) {
  EngineInbox inbox(2, 1000);
  EXPECT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_TRUE(inbox.PostRequest(Request(2, 5)).ok());
  absl::Status full = inbox.PostRequest(Request(3, 5));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_queued_requests is 2"));

  EngineMessages messages;
  inbox.Take(false, &messages);
  EXPECT_EQ(messages.requests.size(), 2u);
  EXPECT_FALSE(inbox.PostRequest(Request(3, 5)).ok()) << "taken is not yet scheduled";
  inbox.SetWaiting(1, 5);
  EXPECT_TRUE(inbox.PostRequest(Request(3, 5)).ok());
  EXPECT_EQ(inbox.queued_requests(), 2);
  EXPECT_EQ(inbox.queued_tokens(), 10);
}

TEST(EngineInboxTest, LimitsWaitingTokensButTakesOneLongPromptAlone) {
  EngineInbox inbox(10, 100);
  EXPECT_TRUE(inbox.PostRequest(Request(1, 200)).ok());
  absl::Status full = inbox.PostRequest(Request(2, 1));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_queued_tokens 100"));
}

TEST(EngineInboxTest, AbortsFitOnceForEachLiveSequence) {
  EngineInbox inbox(1, 1000);
  inbox.PostAbort(7, EngineMessages::kWholeRequest);  // nobody
  ASSERT_TRUE(inbox.PostRequest(Request(1, 5, 2)).ok());
  for (int i = 0; i < 100; ++i) {
    inbox.PostAbort(1, 1);
    inbox.PostAbort(1, 2);  // has sequences 0 and 1 only
  }
  inbox.PostAbort(1, EngineMessages::kWholeRequest);
  inbox.PostAbort(1, EngineMessages::kWholeRequest);
  inbox.PostAbort(1, 0);  // the request has been aborted as a whole
  EngineMessages messages;
  inbox.Take(true, &messages);
  ASSERT_EQ(messages.aborts.size(), 2u);
  EXPECT_EQ(messages.aborts[0].sequence_index, 1);
  EXPECT_EQ(messages.aborts[1].sequence_index, EngineMessages::kWholeRequest);
  inbox.Finish(1);
  inbox.PostAbort(1, EngineMessages::kWholeRequest);
  inbox.Take(false, &messages);
  EXPECT_TRUE(messages.aborts.empty());
}

TEST(EngineInboxTest, RefusesWhenDrainingStoppedOrInUse) {
  EngineInbox inbox(10, 1000);
  EXPECT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_EQ(inbox.PostRequest(Request(1, 5)).code(), absl::StatusCode::kAlreadyExists);
  inbox.BeginDrain();
  EXPECT_EQ(inbox.PostRequest(Request(2, 5)).code(), absl::StatusCode::kUnavailable);
  inbox.PostStop();
  EXPECT_EQ(inbox.PostRequest(Request(3, 5)).code(), absl::StatusCode::kUnavailable);
}

TEST(EngineInboxTest, IdleMeansNoLiveRequest) {
  EngineInbox inbox(10, 1000);
  EXPECT_TRUE(inbox.WaitIdle(absl::InfinitePast()));
  ASSERT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_FALSE(inbox.WaitIdle(absl::InfinitePast()));
  EXPECT_FALSE(inbox.WaitIdle(absl::UnixEpoch()));
  std::thread engine([&] { inbox.Finish(1); });
  EXPECT_TRUE(inbox.WaitIdle(absl::InfiniteFuture()));
  engine.join();
}

TEST(EngineInboxTest, InspectionsAreAnsweredAlsoAtTheEnd) {
  EngineInbox inbox(10, 1000);
  Inspection early;
  EXPECT_FALSE(inbox.PostInspection(&early)) << "no engine thread yet";
  inbox.Open();
  std::thread engine([&] {
    EngineMessages messages;
    inbox.Take(true, &messages);
    for (Inspection* inspection : messages.inspections) inbox.Answer(inspection, absl::InternalError("broken"));
  });
  Inspection inspection;
  EXPECT_TRUE(inbox.PostInspection(&inspection));
  engine.join();
  EXPECT_EQ(inspection.answer.code(), absl::StatusCode::kInternal);
  inbox.Close(absl::OkStatus());
  EXPECT_FALSE(inbox.PostInspection(&inspection));
}

}  // namespace
}  // namespace quire
