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

void Write(OutputRing& ring, uint64_t handle) {
  StepOutputs outputs;
  outputs.logprobs = {{static_cast<int32_t>(handle), 0.f}};
  outputs.sequences.push_back({.handle = handle, .logprobs_count = 1});
  ring.Write(&outputs);
  EXPECT_TRUE(outputs.sequences.empty());
  EXPECT_TRUE(outputs.logprobs.empty());
}

// The handles of the events, each of which must point to its own log-probability.
std::vector<uint64_t> Handles(const StepOutputs& outputs) {
  std::vector<uint64_t> handles;
  for (const SequenceOutput& event : outputs.sequences) {
    handles.push_back(event.handle);
    if (event.logprobs_count > 0) {
      EXPECT_EQ(outputs.logprobs.at(event.logprobs_begin).token_id, static_cast<int32_t>(event.handle));
    }
  }
  return handles;
}

TEST(OutputRingTest, KeepsOrderAndEndsWhenClosed) {
  OutputRing ring;
  for (uint64_t i = 0; i < 4; ++i) Write(ring, i);
  ring.Close();
  for (uint64_t i = 0; i < 4; ++i) {
    const StepOutputs* outputs = ring.Pop();
    ASSERT_NE(outputs, nullptr);
    EXPECT_THAT(Handles(*outputs), ElementsAre(i));
    ring.Release();
  }
  EXPECT_EQ(ring.Pop(), nullptr);
}

TEST(OutputRingTest, WriterWaitsForASlowReaderAndLosesNothing) {
  OutputRing ring;
  std::vector<uint64_t> read;
  std::thread writer([&] {
    for (uint64_t i = 0; i < 1000; ++i) Write(ring, i);
    ring.Close();
  });
  while (ring.num_waits() == 0) std::this_thread::yield();
  while (const StepOutputs* outputs = ring.Pop()) {
    for (uint64_t handle : Handles(*outputs)) read.push_back(handle);
    ring.Release();
  }
  writer.join();
  ASSERT_EQ(read.size(), 1000u);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(read[i], i);
  EXPECT_GE(ring.num_waits(), 1);
}

TEST(OutputRingTest, StopWaitingSendsTheRestToTheSpareSlot) {
  OutputRing ring;
  for (uint64_t i = 0; i < 4; ++i) Write(ring, i);
  std::thread writer([&] {
    for (uint64_t i = 4; i < 7; ++i) Write(ring, i);
    ring.Close();
  });
  while (ring.num_waits() == 0) std::this_thread::yield();
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

void Gather(EngineOutputs& outputs, uint64_t handle, bool finished) {
  StepOutputs& gathered = *outputs.gathered();
  const auto begin = static_cast<int32_t>(gathered.logprobs.size());
  gathered.logprobs.push_back({static_cast<int32_t>(handle), -1.f});
  gathered.sequences.push_back(
      {.handle = handle, .request_finished = finished, .logprobs_begin = begin, .logprobs_count = 1});
}

TEST(EngineOutputsTest, DealsOutByHandleWithLogprobs) {
  for (const int32_t num_shards : {1, 2, 3}) {
    EngineOutputs outputs(num_shards);
    outputs.Publish();  // nothing is gathered, nothing is written
    for (uint64_t handle = 1; handle <= 6; ++handle) Gather(outputs, handle, handle == 3);
    outputs.gathered()->prompt_scores = {{.handle = 5, .position = 1, .logprobs_begin = 4, .logprobs_count = 1}};
    std::vector<uint64_t> finished;
    outputs.CollectFinished(&finished);
    EXPECT_THAT(finished, ElementsAre(3));
    outputs.Publish();
    outputs.Publish();  // nothing is gathered, nothing is written
    outputs.Close();
    for (int32_t shard = 0; shard < num_shards; ++shard) {
      std::vector<uint64_t> expected;
      for (uint64_t handle = 1; handle <= 6; ++handle) {
        if (handle % num_shards == static_cast<uint64_t>(shard)) expected.push_back(handle);
      }
      const StepOutputs* step = outputs.ring(shard).Pop();
      ASSERT_NE(step, nullptr);
      EXPECT_EQ(Handles(*step), expected);
      ASSERT_EQ(step->prompt_scores.size(), 5 % num_shards == shard ? 1u : 0u);
      for (const PromptScoreOutput& score : step->prompt_scores) {
        EXPECT_EQ(step->logprobs.at(score.logprobs_begin).token_id, 5);
      }
      outputs.ring(shard).Release();
      EXPECT_EQ(outputs.ring(shard).Pop(), nullptr);
    }
  }
}

TEST(EngineInboxTest, LimitsWaitingRequests) {
  EngineInbox inbox(QueueLimits{2, 1000});
  EXPECT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_TRUE(inbox.PostRequest(Request(2, 5)).ok());
  absl::Status full = inbox.PostRequest(Request(3, 5));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_queued_requests is 2"));

  EngineMessages messages;
  inbox.Take(absl::InfinitePast(), &messages);
  EXPECT_EQ(messages.requests.size(), 2u);
  EXPECT_FALSE(inbox.PostRequest(Request(3, 5)).ok()) << "taken is not yet scheduled";
  inbox.SetWaiting({.requests = 1, .tokens = 5});
  EXPECT_TRUE(inbox.PostRequest(Request(3, 5)).ok());
  EXPECT_EQ(inbox.queued_requests(), 2);
  EXPECT_EQ(inbox.queued_tokens(), 10);
}

TEST(EngineInboxTest, WaitsNoLongerThanAllowed) {
  EngineInbox inbox(QueueLimits{2, 1000});
  EngineMessages messages;
  inbox.Take(absl::Now() + absl::Milliseconds(1), &messages);
  EXPECT_TRUE(messages.requests.empty());
  ASSERT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  inbox.Take(absl::FromUnixSeconds(int64_t{1} << 40), &messages);  // beyond the clock's range
  EXPECT_EQ(messages.requests.size(), 1u);
}

TEST(EngineInboxTest, LimitsWaitingTokensButTakesOneLongPromptAlone) {
  EngineInbox inbox(QueueLimits{10, 100});
  EXPECT_TRUE(inbox.PostRequest(Request(1, 200)).ok());
  absl::Status full = inbox.PostRequest(Request(2, 1));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_queued_tokens 100"));
}

TEST(EngineInboxTest, AbortsFitOnceForEachLiveSequence) {
  EngineInbox inbox(QueueLimits{1, 1000});
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
  inbox.Take(absl::InfiniteFuture(), &messages);
  ASSERT_EQ(messages.aborts.size(), 2u);
  EXPECT_EQ(messages.aborts[0].sequence_index, 1);
  EXPECT_EQ(messages.aborts[1].sequence_index, EngineMessages::kWholeRequest);
  inbox.Finish({1});
  inbox.PostAbort(1, EngineMessages::kWholeRequest);
  inbox.Take(absl::InfinitePast(), &messages);
  EXPECT_TRUE(messages.aborts.empty());
}

TEST(EngineInboxTest, RefusesWhenDrainingStoppedOrInUse) {
  EngineInbox inbox(QueueLimits{10, 1000});
  EXPECT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_EQ(inbox.PostRequest(Request(1, 5)).code(), absl::StatusCode::kAlreadyExists);
  inbox.BeginDrain();
  EXPECT_EQ(inbox.PostRequest(Request(2, 5)).code(), absl::StatusCode::kUnavailable);
  inbox.PostStop();
  EXPECT_EQ(inbox.PostRequest(Request(3, 5)).code(), absl::StatusCode::kUnavailable);
}

TEST(EngineInboxTest, IdleMeansNoLiveRequest) {
  EngineInbox inbox(QueueLimits{10, 1000});
  EXPECT_TRUE(inbox.WaitIdle(absl::InfinitePast()));
  ASSERT_TRUE(inbox.PostRequest(Request(1, 5)).ok());
  EXPECT_FALSE(inbox.WaitIdle(absl::InfinitePast()));
  EXPECT_FALSE(inbox.WaitIdle(absl::UnixEpoch()));
  std::thread engine([&] { inbox.Finish({1}); });
  EXPECT_TRUE(inbox.WaitIdle(absl::InfiniteFuture()));
  engine.join();
}

TEST(EngineInboxTest, TasksAreTakenOnceAndTheRestComesBackAtTheEnd) {
  EngineInbox inbox(QueueLimits{10, 1000});
  int runs = 0;
  const auto task = [&runs] { ++runs; };
  EXPECT_FALSE(inbox.PostTask(task)) << "no engine thread yet";
  inbox.Open();
  EXPECT_TRUE(inbox.PostTask(task));
  EngineMessages messages;
  inbox.Take(absl::InfiniteFuture(), &messages);
  ASSERT_EQ(messages.tasks.size(), 1u);
  messages.tasks[0]();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(inbox.PostTask(task));
  EXPECT_TRUE(inbox.PostTask(task));
  EXPECT_EQ(inbox.Close().size(), 2u);
  EXPECT_FALSE(inbox.PostTask(task));
  EXPECT_TRUE(inbox.Close().empty());
}

}  // namespace
}  // namespace quire
