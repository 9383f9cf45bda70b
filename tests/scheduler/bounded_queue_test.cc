#include "scheduler/bounded_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

using Queue = BoundedQueue<std::unique_ptr<int>>;

TEST(BoundedQueueTest, FullIsAnAnswerAndReservedRoomIsForReservedItems) {
  Queue queue(1, 1);
  auto item = std::make_unique<int>(1);
  EXPECT_EQ(queue.TryPush(std::move(item)), Queue::PushResult::kOk);
  item = std::make_unique<int>(2);
  EXPECT_EQ(queue.TryPush(std::move(item)), Queue::PushResult::kFull);
  ASSERT_NE(item, nullptr);  // not moved from
  EXPECT_EQ(queue.PushReserved(std::move(item)), Queue::PushResult::kOk);
  EXPECT_EQ(queue.PushReserved(std::make_unique<int>(3)), Queue::PushResult::kFull);
  std::vector<std::unique_ptr<int>> out;
  EXPECT_TRUE(queue.PopAll(absl::InfinitePast(), &out));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(*out[0], 1);
  EXPECT_EQ(*out[1], 2);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(BoundedQueueTest, AClosedQueueGivesWhatItHasAndThenEnds) {
  Queue queue(4, 0);
  EXPECT_EQ(queue.TryPush(std::make_unique<int>(1)), Queue::PushResult::kOk);
  queue.Close();
  EXPECT_EQ(queue.TryPush(std::make_unique<int>(2)), Queue::PushResult::kClosed);
  std::vector<std::unique_ptr<int>> out;
  EXPECT_TRUE(queue.PopAll(absl::InfiniteFuture(), &out));
  EXPECT_EQ(out.size(), 1u);
  EXPECT_FALSE(queue.PopAll(absl::InfiniteFuture(), &out));
  EXPECT_TRUE(out.empty());
}

TEST(BoundedQueueTest, APassedDeadlineGivesNothingAndGoesOn) {
  Queue queue(4, 0);
  std::vector<std::unique_ptr<int>> out;
  EXPECT_TRUE(queue.PopAll(absl::InfinitePast(), &out));
  EXPECT_TRUE(out.empty());
}

TEST(BoundedQueueTest, ManyProducersLoseNothingAndKeepTheirOrder) {
  constexpr int kProducers = 4, kItems = 2000;
  BoundedQueue<std::pair<int, int>> queue(16, 0);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) {
        while (queue.TryPush({p, i}) != BoundedQueue<std::pair<int, int>>::PushResult::kOk) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kProducers);
  std::vector<std::pair<int, int>> out;
  for (int taken = 0; taken < kProducers * kItems;) {
    ASSERT_TRUE(queue.PopAll(absl::InfiniteFuture(), &out));
    for (const auto& [producer, item] : out) EXPECT_EQ(item, next[producer]++);
    taken += static_cast<int>(out.size());
  }
  for (std::thread& producer : producers) producer.join();
  queue.Close();
  EXPECT_FALSE(queue.PopAll(absl::InfiniteFuture(), &out));
}

}  // namespace
}  // namespace quire
