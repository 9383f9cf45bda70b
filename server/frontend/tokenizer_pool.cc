#include "server/frontend/tokenizer_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace quire {

TokenizerPool::TokenizerPool(Options options) : options_(options) {
  QUIRE_CHECK(options_.num_threads >= 1);
  for (int32_t i = 0; i < options_.num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

TokenizerPool::~TokenizerPool() { Stop(); }

absl::Status TokenizerPool::Post(int64_t bytes, std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the server is shutting down");
  if (num_tasks_ >= options_.max_tasks)
    return absl::ResourceExhaustedError(
        absl::StrCat(num_tasks_, " texts wait for the tokenizer; the limit is ", options_.max_tasks));
  if (num_tasks_ > 0 && num_bytes_ + bytes > options_.max_bytes)
    return absl::ResourceExhaustedError(absl::StrCat(num_bytes_, " bytes of text wait for the tokenizer; ", bytes,
                                                     " more would pass the limit of ", options_.max_bytes));
  ++num_tasks_;
  num_bytes_ += bytes;
  waiting_.push_back({bytes, std::move(task)});
  return absl::OkStatus();
}

void TokenizerPool::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TokenizerPool::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !waiting_.empty(); };
  for (;;) {
    Task task;
    {
      MutexLock lock(&mutex_);
      mutex_.Await(has_work);
      if (waiting_.empty()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
    }
    task.run();
    task.run = nullptr;  // what it held is free before its bytes are
    MutexLock lock(&mutex_);
    --num_tasks_;
    num_bytes_ -= task.bytes;
  }
}

}  // namespace quire
