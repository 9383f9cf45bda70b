#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/cli/bench_dataset.h"
#include "server/cli/bench_metrics.h"
#include "server/cli/client.h"

namespace quire::cli {

struct LoadOptions {
  int concurrency = 1;
  float temperature = 0;
  bool ignore_eos = true;
  uint64_t seed = 0;
  std::string salt;  // of the prefix cache: runs do not find each other's prompts
};

// One closed loop: `concurrency` requests are kept running until all have been sent; each one that ends starts the
// next. Streams are asynchronous, so that many of them need no threads of ours. Cancel may come from any thread.
class LoadRun {
 public:
  // `client` and `requests` outlive the run.
  LoadRun(Client& client, absl::Span<const BenchRequest> requests, const LoadOptions& options);

  void Start();
  // True once all requests have ended, false after `timeout`.
  bool Wait(absl::Duration timeout);
  // Ends running requests and starts no more; those count as failed, those never sent do not count.
  void Cancel();

  int64_t num_ended() const;
  // After Wait returned true: one record for each request sent, in order of their ends; seconds from start to end.
  std::vector<RequestRecord> records() const;
  double duration() const;

 private:
  using Clock = std::chrono::steady_clock;

  double Now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool HasNext() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !cancelled_ && next_ < requests_.size(); }
  bool Ended() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_running_ == 0 && !HasNext(); }
  void Send(size_t index);
  void OnEnd(size_t index, RequestRecord record);

  Client& client_;
  const absl::Span<const BenchRequest> requests_;
  const LoadOptions options_;
  Clock::time_point start_;

  mutable absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // first request not sent
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  double duration_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);        // of ended ones
  std::vector<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // by request; null before and after
};

}  // namespace quire::cli
