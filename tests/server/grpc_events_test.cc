// SubscribeKvEvents: events of the prefix cache to clients that keep up, that do not, that come back and that go.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/server/grpc_admin_fixture.h"

namespace quire::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRing = 256;

FixtureOptions Stalling(absl::Duration stall_timeout) {
  FixtureOptions options;
  options.server.stall_timeout = stall_timeout;
  return options;
}

class EventsTest : public AdminTest {
 protected:
  explicit EventsTest(int32_t num_events = kRing, const FixtureOptions& fixture = {}, bool prefix_cache = true)
      : AdminTest(Options(num_events, prefix_cache), fixture) {}

  static EngineOptions Options(int32_t num_events, bool prefix_cache) {
    EngineOptions options;
    options.num_kv_events = num_events;
    options.scheduler.enable_prefix_caching = prefix_cache;
    return options;
  }

  // One call of SubscribeKvEvents.
  struct Subscriber {
    Subscriber(v1::Admin::Stub& stub, std::optional<uint64_t> from) {
      v1::SubscribeKvEventsRequest request;
      if (from) request.set_from(*from);
      reader = stub.SubscribeKvEvents(&context, request);
    }
    ~Subscriber() { context.TryCancel(); }

    // The next message; an empty one at the end of the stream.
    v1::KvEvents Read() {
      v1::KvEvents message;
      reader->Read(&message);
      return message;
    }
    // At least `count` events, in as many messages as they come; they follow each other.
    std::vector<v1::KvEvent> ReadEvents(size_t count) {
      std::vector<v1::KvEvent> events;
      uint64_t next = 0;
      for (v1::KvEvents message; events.size() < count && reader->Read(&message);) {
        if (!events.empty()) {
          EXPECT_EQ(message.first(), next);
        }
        next = message.first() + message.events_size();
        events.insert(events.end(), message.events().begin(), message.events().end());
      }
      return events;
    }
    grpc::Status Finish() {
      for (v1::KvEvents message; reader->Read(&message);) {
      }
      return reader->Finish();
    }

    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::KvEvents>> reader;
  };

  std::unique_ptr<Subscriber> Subscribe(std::optional<uint64_t> from = std::nullopt) {
    return std::make_unique<Subscriber>(*admin_, from);
  }
  // The number of the event to come.
  uint64_t NextNumber() { return Subscribe()->Read().first(); }
  void DropAll() {
    v1::DropPrefixRequest drop;
    drop.set_all(true);
    uint32_t dropped = 0;
    EXPECT_TRUE(Drop(drop, &dropped).ok());
  }
};

TEST_F(EventsTest, TellsWhatIsStoredRemovedAndClearedInOrder) {
  const auto subscriber = Subscribe();
  const v1::KvEvents head = subscriber->Read();
  EXPECT_EQ(head.events_size(), 0);
  EXPECT_EQ(head.first(), 0u);
  EXPECT_EQ(head.lost(), 0u);
  EXPECT_EQ(head.block_size(), static_cast<uint32_t>(kBlockSize));
  EXPECT_NE(head.log_id(), 0u);

  Generate(Ids(10, 17));
  std::vector<v1::KvEvent> events = subscriber->ReadEvents(2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind(), v1::KvEvent::KIND_STORED);
  EXPECT_EQ(events[0].tier(), v1::KvEvent::TIER_DEVICE);
  EXPECT_EQ(events[0].parent(), head.root());
  EXPECT_THAT(events[0].token_ids(), ::testing::ElementsAreArray(Ids(10, 8).ids()));
  EXPECT_EQ(events[1].parent(), events[0].key());
  EXPECT_THAT(events[1].token_ids(), ::testing::ElementsAreArray(Ids(18, 8).ids()));
  EXPECT_EQ(List().prefixes(0).root(), head.root());

  v1::DropPrefixRequest drop;
  *drop.mutable_prefix()->mutable_token_ids() = Ids(10, 8);
  uint32_t dropped = 0;
  ASSERT_TRUE(Drop(drop, &dropped).ok());
  events = subscriber->ReadEvents(2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind(), v1::KvEvent::KIND_REMOVED);
  EXPECT_EQ(events[0].key().size(), 16u);
  DropAll();
  events = subscriber->ReadEvents(1);
  EXPECT_EQ(events.back().kind(), v1::KvEvent::KIND_CLEARED);
  EXPECT_EQ(events.back().key(), "");
}

TEST_F(EventsTest, RequestsThatMayNotShareHaveNoKeyInCommon) {
  const auto subscriber = Subscribe();
  const std::string root = subscriber->Read().root();
  v1::Cache salted;
  salted.set_salt("s");
  Generate(Ids(10, 17));
  Generate(Ids(10, 17), "t");
  Generate(Ids(10, 17), "", salted);
  std::set<std::string> keys, parents;
  for (const v1::KvEvent& event : subscriber->ReadEvents(6)) {
    keys.insert(event.key());
    parents.insert(event.parent());
  }
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(parents.size(), 6u);
  EXPECT_EQ(parents.count(root), 1u);
}

TEST_F(EventsTest, ResumesWhereItStopped) {
  Generate(Ids(10, 33));
  const auto first = Subscribe(0);
  const v1::KvEvents all = first->Read();
  ASSERT_EQ(all.events_size(), 4);
  first->context.TryCancel();
  EXPECT_EQ(first->Finish().error_code(), grpc::StatusCode::CANCELLED);

  const auto second = Subscribe(2);
  const v1::KvEvents rest = second->Read();
  EXPECT_EQ(rest.first(), 2u);
  EXPECT_EQ(rest.lost(), 0u);
  EXPECT_EQ(rest.log_id(), all.log_id());
  ASSERT_EQ(rest.events_size(), 2);
  EXPECT_EQ(rest.events(0).key(), all.events(2).key());
  const auto third = Subscribe(4);
  EXPECT_EQ(third->Read().events_size(), 0);
  Generate(Ids(100, 9));
  EXPECT_EQ(third->ReadEvents(1)[0].token_ids(0), 100u);
  EXPECT_EQ(second->ReadEvents(1)[0].token_ids(0), 100u);
}

TEST_F(EventsTest, ANumberBeyondTheNextIsOutOfRange) {
  Generate(Ids(10, 17));
  for (uint64_t from : {uint64_t{3}, UINT64_MAX}) {
    const grpc::Status status = Subscribe(from)->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
    EXPECT_THAT(status.error_message(), HasSubstr("beyond 2, the number of the event to come"));
  }
}

TEST_F(EventsTest, WhoComesTooLateIsToldHowMuchIsLost) {
  for (int i = 0; i < 12; ++i) Generate(Ids(1000 * i, 193));  // 24 blocks each, of 64
  const uint64_t next = NextNumber();
  ASSERT_GT(next, uint64_t{kRing});
  const v1::KvEvents kept = Subscribe(0)->Read();
  EXPECT_EQ(kept.lost(), next - kRing);
  EXPECT_EQ(kept.first(), next - kRing);
  EXPECT_EQ(kept.events_size(), kRing);
}

TEST_F(EventsTest, ASlowSubscriberLosesEventsAndSlowsNobodyDown) {
  const auto stub = v1::Admin::NewStub(fixture_.NewChannel(/*small_window=*/true));
  const auto slow = std::make_unique<Subscriber>(*stub, 0);
  EXPECT_EQ(slow->Read().first(), 0u);
  // More than what is on the way to it may hold: some 50 bytes an event, 45 events a request.
  for (int i = 0; i < 600; ++i) Generate(Ids(300 * i, 193));
  const uint64_t end = NextNumber();
  uint64_t next = 0, lost = 0, got = 0;
  while (next < end) {
    const v1::KvEvents message = slow->Read();
    ASSERT_GT(message.events_size(), 0);
    EXPECT_LE(message.events_size(), 256);
    EXPECT_EQ(message.first(), next + message.lost()) << "no gap but what is told";
    next = message.first() + message.events_size();
    lost += message.lost();
    got += message.events_size();
  }
  EXPECT_EQ(next, end);
  EXPECT_EQ(lost + got, end);
  EXPECT_GT(lost, 0u);
}

TEST_F(EventsTest, SubscribersAreLimitedAndMakeRoomWhenTheyGo) {
  std::vector<std::unique_ptr<Subscriber>> all;
  for (int i = 0; i < EventFeed::kMaxReaders; ++i) {
    all.push_back(Subscribe());
    EXPECT_EQ(all.back()->Read().block_size(), static_cast<uint32_t>(kBlockSize));
  }
  const grpc::Status refused = Subscribe()->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("64"));
  all.pop_back();
  // The server learns of it in its own time.
  while (Subscribe()->Read().block_size() == 0) {
  }
  Generate(Ids(10, 9));
  for (const auto& subscriber : all) EXPECT_EQ(subscriber->ReadEvents(1).size(), 1u);
}

TEST_F(EventsTest, ADrainedServerTellsEventsUntilItStops) {
  const auto subscriber = Subscribe();
  subscriber->Read();
  gate_.OpenUntil(1);
  v1::GenerateRequest request;
  *request.mutable_token_ids() = Ids(10, 9);
  request.mutable_stopping()->set_max_tokens(1);
  grpc::ClientContext context;
  auto reader = fixture_.stub->GenerateStream(&context, request);
  gate_.AwaitStep(1);
  fixture_.frontend->BeginDrain();
  fixture_.server->SetDraining();
  gate_.Open();
  EXPECT_EQ(subscriber->ReadEvents(1).size(), 1u);
  EXPECT_TRUE(fixture_.frontend->WaitIdle(absl::InfiniteFuture()));
  fixture_.frontend->Stop();
  const grpc::Status status = subscriber->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  google::rpc::RetryInfo retry;
  EXPECT_TRUE(GetDetail(status, &retry));
  const grpc::Status late = Subscribe()->Finish();
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
}

class StallingEventsTest : public EventsTest {
 protected:
  StallingEventsTest() : EventsTest(kRing, Stalling(absl::Milliseconds(20))) {}
};

TEST_F(StallingEventsTest, ASubscriberThatReadsNothingIsCancelled) {
  const auto stub = v1::Admin::NewStub(fixture_.NewChannel(/*small_window=*/true));
  Subscriber stalled(*stub, 0);
  EXPECT_EQ(stalled.Read().first(), 0u);
  for (int i = 0; i < 600; ++i) Generate(Ids(300 * i, 193));
  // All places are taken until it has lost its own.
  std::vector<std::unique_ptr<Subscriber>> others;
  for (int i = 1; i < EventFeed::kMaxReaders; ++i) {
    others.push_back(Subscribe());
    others.back()->Read();
  }
  while (Subscribe()->Read().block_size() == 0) {
  }
  EXPECT_EQ(stalled.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

class NoEventsTest : public EventsTest {
 protected:
  NoEventsTest() : EventsTest(/*num_events=*/0) {}
};

TEST_F(NoEventsTest, NothingIsToldWithoutARing) {
  const grpc::Status status = Subscribe()->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--kv-events"));
}

class UncachedEventsTest : public EventsTest {
 protected:
  UncachedEventsTest() : EventsTest(kRing, {}, /*prefix_cache=*/false) {}
};

TEST_F(UncachedEventsTest, NothingIsToldWithoutAPrefixCache) {
  const grpc::Status status = Subscribe()->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--no-enable-prefix-caching"));
}

TEST(LoadingEventsTest, NothingIsToldBeforeTheModelIsLoaded) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  const ServerFixture fixture(engine, tokenizer, "loading_events");
  grpc::ClientContext context;
  auto reader = v1::Admin::NewStub(fixture.channel)->SubscribeKvEvents(&context, {});
  v1::KvEvents message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace quire::testing
