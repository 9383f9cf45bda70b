#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block_manager.h"
#include "block_manager/block_manager_observer.h"
#include "block_manager/token_permutation.h"
#include "scheduler/scheduler_observer.h"
#include "scheduler/trace/trace_record.h"

namespace quire {

// Takes the records of a trace in order. `record` is the recorder's.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void Take(const TraceRecord& record) = 0;
};

// Turns what happens to a scheduler and its block manager into records. Set as observer of both before their first
// call: a trace begins with nothing.
//
// Token ids and roots are replaced by keyed images; the block manager must have been made with the same permutation as
// its token_order, else replays choose other blocks. With the identity they stay as they are.
//
// In steady state (steps of the same sequences) nothing is allocated. Used on the scheduler's thread.
class TraceRecorder : public SchedulerObserver, public BlockManagerObserver {
 public:
  // Both outlive it.
  TraceRecorder(const BlockManager* blocks, const TokenPermutation& permutation, TraceSink* sink);

  void OnAdd(const EngineRequest& request) override;
  void OnAbort(uint64_t handle, absl::Time now) override;
  void OnAbortSequence(uint64_t handle, int32_t sequence_index, absl::Time now) override;
  void OnSetHeld(uint64_t handle, bool held) override;
  void OnDropExpired(absl::Time now) override;
  void OnSchedule(absl::Time now) override;
  void OnCommit(const SchedulePlan& plan, const StepResult& result, absl::Time now, double step_seconds) override;
  void OnFailStep(const SchedulePlan& plan, const absl::Status& status, absl::Time now) override;
  void OnReturn() override;

  void OnAdmitted(const Sequence& sequence, const PrefixMatch& match) override;
  void OnFollows(const Sequence& sequence, const Sequence& producer, int32_t reach) override;
  void OnPreempted(const Sequence& victim, const Sequence* requester, PreemptReason reason) override;
  void OnEnded(const Sequence& sequence, FinishReason reason, const absl::Status& error) override;
  void OnPlan(const SchedulePlan& plan) override;

  void OnAdvanceTime(absl::Time now) override;
  void OnSetTenantQuota(int32_t tenant, int32_t max_blocks) override;
  void OnDropPrefix(const BlockHash& root, absl::Span<const int32_t> tokens) override;
  void OnDropTenant(int32_t tenant) override;
  void OnDropAll() override;
  void OnDropped(int32_t num_blocks) override;

 private:
  void Begin(TraceCall call);
  TraceDecision& Decide(TraceDecision::Kind kind, const Sequence& sequence);
  void MapIds(absl::Span<const int32_t> ids, std::vector<int32_t>* images) const;
  BlockHash MapRoot(const BlockHash& root) const;
  void AddBlocks(const BlockTable& table, int32_t begin);
  void AddSampleRow(const SampleRow& row);
  BlockHash Digest(const SchedulePlan& plan);

  const BlockManager* const blocks_;
  const TokenPermutation permutation_;
  TraceSink* const sink_;
  TraceRecord record_;
  bool in_call_ = false;
  int64_t evictions_ = 0;
  std::vector<int32_t> digested_;  // what the next digest is of
};

}  // namespace quire
