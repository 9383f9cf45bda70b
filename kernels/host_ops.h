#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/op_checks.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace quire {

// Adds the time it lives to a sum.
class OpTimer {
 public:
  explicit OpTimer(double* seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~OpTimer() { *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* seconds_;
  Clock::time_point start_;
};

// First element of the K rows of a block and head; its V rows follow at once. T is the element type of kv.dtype.
template <typename T>
T* KvRun(const PagedKvView& kv, int64_t block, int64_t kv_head) {
  const int64_t run = int64_t{2} * kv.block_size * kv.head_dim;
  return static_cast<T*>(kv.data) + (block * kv.num_kv_heads + kv_head) * run;
}

// What the backends of the host share: ops without arithmetic worth a second version, the pool and the clocks.
class HostOps : public Ops {
 public:
  explicit HostOps(int num_threads) : pool_(num_threads), sampling_scratch_(num_threads) {}

  absl::Status RopeTable(const RopeTableParams& params) override;
  absl::Status GatherRows(const GatherRowsParams& params) override;
  absl::Status CopyBlocks(const CopyBlocksParams& params) override;
  absl::Status SampleTokens(const SampleTokensParams& params) override;

  OpTimes times() const override { return times_; }
  void ResetTimes() override { times_ = OpTimes{}; }

  int num_threads() const { return pool_.num_threads(); }

 protected:
  // Carries out what has been put off, before an op that is not.
  virtual void Finish() {}

  ThreadPool pool_;
  OpTimes times_;

 private:
  std::vector<SamplingScratch> sampling_scratch_;  // one a thread
};

}  // namespace quire
