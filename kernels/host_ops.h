#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/base/kv_layout.h"
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

// The run of a block and head.
inline std::byte* KvRun(const PagedKvView& kv, const KvRunLayout& layout, int64_t block, int64_t kv_head) {
  return static_cast<std::byte*>(kv.data) + (block * kv.num_kv_heads + kv_head) * layout.bytes();
}
inline KvRunLayout LayoutOf(const PagedKvView& kv) { return MakeKvRunLayout(kv.dtype, kv.block_size, kv.head_dim); }

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
