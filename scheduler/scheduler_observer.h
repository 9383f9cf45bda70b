#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "model/step_result.h"
#include "scheduler/request.h"
#include "scheduler/schedule_plan.h"
#include "scheduler/step_outputs.h"

namespace quire {

// Why a running sequence lost its blocks.
enum class PreemptReason : uint8_t {
  kBlocks,        // another running one, which ranks before it, needs them
  kLastInRank,    // it needs some itself, and nobody ranks after it
  kPlace,         // one that waits and may interrupt it needs its place in the batch
  kUrgentBlocks,  // ... needs its blocks
  kHeld,          // its request is held
  kIdleBeam,      // it waits for other beams of its request, and nothing else can run
  kLostCopy,      // a copy that was to fill its blocks failed with a step that it was not in
};

// Told of every call that reaches a Scheduler and of what it decides, in order: what a record of a run is made of
// (scheduler/trace). A call is told before it takes effect, then its decisions, then OnReturn. Calls without effect
// (a refused Add, unknown handles) may be told or not.
//
// Called on the scheduler's thread; must not call back. References live as long as the call.
class SchedulerObserver {
 public:
  virtual ~SchedulerObserver() = default;

  // --- Calls
  virtual void OnAdd(const EngineRequest& request) = 0;
  virtual void OnAbort(uint64_t handle, absl::Time now) = 0;
  virtual void OnAbortSequence(uint64_t handle, int32_t sequence_index, absl::Time now) = 0;
  virtual void OnSetHeld(uint64_t handle, bool held) = 0;
  virtual void OnDropExpired(absl::Time now) = 0;
  virtual void OnSchedule(absl::Time now) = 0;
  virtual void OnCommit(const SchedulePlan& plan, const StepResult& result, absl::Time now, double step_seconds) = 0;
  virtual void OnFailStep(const SchedulePlan& plan, const absl::Status& status, absl::Time now) = 0;
  virtual void OnReturn() = 0;

  // --- Decisions
  // Starts; `match`: what the cache gave, and why no more. With tokens of its own in the plan, or as a PlanRider.
  virtual void OnAdmitted(const Sequence& sequence, const PrefixMatch& match) = 0;
  // Does not start in this step: `producer` computes what it needs next, `reach` leading tokens of it in the end.
  virtual void OnFollows(const Sequence& sequence, const Sequence& producer, int32_t reach) = 0;
  // Told before the blocks are given back. `requester`: for whom; null: nobody else.
  virtual void OnPreempted(const Sequence& victim, const Sequence* requester, PreemptReason reason) = 0;
  virtual void OnEnded(const Sequence& sequence, FinishReason reason, const absl::Status& error) = 0;
  // What Schedule gave, perhaps an empty plan.
  virtual void OnPlan(const SchedulePlan& plan) = 0;
};

// Tells an observer, which may be null, of one call: when it begins and when it returns.
class ObservedCall {
 public:
  template <typename Tell>
  ObservedCall(SchedulerObserver* observer, Tell tell) : observer_(observer) {
    if (observer_ != nullptr) tell(*observer_);
  }
  ~ObservedCall() {
    if (observer_ != nullptr) observer_->OnReturn();
  }
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

 private:
  SchedulerObserver* const observer_;
};

}  // namespace quire
