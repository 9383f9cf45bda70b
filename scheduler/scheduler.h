#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "block_manager/block_manager.h"
#include "model/step_result.h"
#include "scheduler/admission_rate.h"
#include "scheduler/host_copy_cost.h"
#include "scheduler/lane.h"
#include "scheduler/request.h"
#include "scheduler/schedule_plan.h"
#include "scheduler/scheduler_observer.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/scheduling_policy.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_budget.h"
#include "scheduler/step_outputs.h"
#include "scheduler/step_time_model.h"
#include "scheduler/waiting_queue.h"

namespace quire {

// What the model sets.
struct SequenceLimits {
  int32_t max_model_len = 0;           // prompt + output tokens of a sequence, >= 2
  std::vector<int32_t> eos_token_ids;  // end a sequence unless the request ignores them
};

struct SchedulerStats {
  int64_t steps = 0;                                       // plans made
  int32_t requests_running = 0, requests_waiting = 0;      // waiting: none of it holds blocks, nor is it held
  int32_t requests_held = 0;                               // their readers do not keep up
  int64_t waiting_prompt_tokens = 0;                       // of waiting requests
  int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;  // counted once a request, at its first admission
  int64_t preemptions = 0;
  int64_t swaps = 0;  // of these: the blocks are kept on the host rather than computed again
  int64_t requests_finished = 0, requests_aborted = 0, requests_failed = 0;
  int64_t prompt_tokens = 0;  // of requests admitted so far
  int64_t generation_tokens = 0;
  // Speculation: steps of sequences that tried drafts, drafts tried, and those of them that were right.
  int64_t drafting_steps = 0, drafted_tokens = 0, accepted_tokens = 0;
  int64_t surplus_tokens = 0;  // sampled, and dropped because the sequence had ended meanwhile
  // How fast waiting requests start, from steps that left some waiting; 0: not known.
  double starts_per_second = 0, start_tokens_per_second = 0;  // requests, prompt tokens
};

// Decides what each step computes. One rule covers prefill, chunked prefill, decode, prefix hits and resumption: what
// is computed catches up with what is known, within the step's token budget.
//
//   Scheduler scheduler(options, limits, &blocks);
//   scheduler.Add(request);
//   while (scheduler.HasWork()) {
//     scheduler.Schedule(now, &plan, outputs);
//     if (!plan.empty()) scheduler.Commit(plan, Run(plan), now, outputs);
//   }
//
// With max_plans_in_flight 2 the next plan is made before this one is committed: README.md, "Overlap".
//
// What comes first is decided by a SchedulingPolicy, all formulas are in scheduler/README.md. No clock, socket or
// device: time and results come in as arguments, events go out as values, so that a run can be replayed.
//
// `outputs` everywhere: events are appended to it. Every request that Add took ends with exactly one event whose
// request_finished is set.
//
// Not thread-safe: the engine thread owns it. A plan that is not empty is in flight from Schedule until its Commit or
// FailStep; they are committed in the order in which they were made. While max_plans_in_flight are, Schedule may not be
// called. A step in steady state (the same sequences as before) allocates nothing.
class Scheduler {
 public:
  // `blocks` outlives the scheduler.
  Scheduler(const SchedulerOptions& options, SequenceLimits limits, BlockManager* blocks);

  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Whether the request can ever be served: kInvalidArgument naming field, value and limit. Reads constants only, so it
  // is safe from any thread.
  absl::Status CheckRequest(const EngineRequest& request) const;

  // Takes a request into the queue. As CheckRequest; kAlreadyExists if its handle lives.
  absl::Status Add(EngineRequest request);

  // Ends a request, or one sequence of it: the final events (kAborted) are given at once, no further plan contains it,
  // and its blocks are released when the plans in flight that hold it are done. Unknown or finished ones are ignored.
  void Abort(uint64_t handle, absl::Time now, StepOutputs* outputs);
  // Single sequences of a beam search cannot be ended: ignored.
  void AbortSequence(uint64_t handle, int32_t sequence_index, absl::Time now, StepOutputs* outputs);

  // A held request gives up its blocks, as if preempted, and is passed over until it is let go on: its reader does not
  // keep up. Unknown or finished ones are ignored. REQUIRES: no plan in flight.
  void SetHeld(uint64_t handle, bool held);

  // Ends requests whose deadline has come (kDeadlineExceeded).
  void DropExpired(absl::Time now, StepOutputs* outputs);

  // DropExpired, then fills *plan with the next step. An empty plan must not be committed. With a plan in flight that
  // means: commit that one first. If there is work and yet nothing can run, the first that waits, or else one that
  // runs, fails with kResourceExhausted, so repeated calls always end. REQUIRES: fewer than max_plans_in_flight are in
  // flight.
  void Schedule(absl::Time now, SchedulePlan* plan, StepOutputs* outputs);

  // The earliest plan in flight has run: appends tokens, publishes full blocks, forks, finishes, gives events.
  // result.samples and result.scores answer plan.samples and plan.scores one by one. `step_seconds`: what the step
  // took, from which the step-time model learns; 0: not measured.
  void Commit(const SchedulePlan& plan, const StepResult& result, absl::Time now, StepOutputs* outputs,
              double step_seconds = 0);

  // The earliest plan in flight failed as a whole: the requests in it end with kError and `status`, and no other.
  void FailStep(const SchedulePlan& plan, const absl::Status& status, absl::Time now, StepOutputs* outputs);

  // Null: none. It outlives the scheduler or is taken away before.
  void SetObserver(SchedulerObserver* observer) { observer_ = observer; }

  // Plans made and neither committed nor failed.
  int32_t num_in_flight() const { return static_cast<int32_t>(step_ - committed_step_); }
  // Some request lives that is not held.
  bool HasWork() const { return static_cast<int32_t>(groups_.size()) > stats_.requests_held; }
  // No live request has an earlier one.
  absl::Time next_deadline() const { return groups_.empty() ? absl::InfiniteFuture() : next_deadline_; }
  const SchedulerStats& stats() const { return stats_; }
  const StepTimeModel& step_time() const { return step_time_; }

  // kInternal naming the first broken invariant of scheduler and block manager. O(everything).
  absl::Status CheckInvariants() const;

 private:
  // The order of everything: online before offline, then the lane with the smaller charge, then rank. Charges change as
  // plans are made and sequences start and stop.
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const;
  };

  // --- scheduler.cc: life of requests
  SequenceGroup* Find(uint64_t handle) const;
  bool InFlight(const Sequence& sequence) const { return sequence.last_step > committed_step_; }
  void SetState(Sequence* sequence, SequenceState state);
  void CountRequest(const SequenceGroup& group, int32_t sign);
  void ReleaseBlocks(Sequence* sequence);
  // Completes an event with what concerns the request, and ends the sequence if the event has a finish reason.
  void EmitEvent(Sequence* sequence, SequenceOutput event, StepOutputs* outputs);
  void CompleteEvent(Sequence* sequence, SequenceOutput* event);  // one that already stands in the outputs
  void Retire(SequenceGroup* group);
  // Ends the sequences of a request that are not given to the client, without events.
  void DismissUnseen(SequenceGroup* group);
  // Ends all sequences of a request: kAborted, or kError with `status`.
  void EndGroup(SequenceGroup* group, FinishReason reason, const absl::Status& status, absl::Time now,
                StepOutputs* outputs);
  // Forgets what no longer runs, and what has finished and is in no plan in flight.
  void CleanUp();

  // Moves what its lane is charged for in advance to `tokens`.
  static void SetCommitted(Sequence* sequence, int32_t tokens) {
    sequence->lane->committed += tokens - sequence->committed;
    sequence->committed = tokens;
  }
  void EndExpired(absl::Time now, StepOutputs* outputs);
  void DropHopeless(absl::Time now, StepOutputs* outputs);

  // --- schedule.cc: making a plan
  void SpareWaiting();
  void MakePlan(double seconds, absl::Time now, SchedulePlan* plan);
  void PlanClass(bool offline);
  void PlanRunning(bool offline);
  void PlanRow(Sequence* sequence);
  void PlanPrefills(bool offline);
  void PlanLeftover();
  void FillPlan(absl::Time now, SchedulePlan* plan);
  void AddToPlan(Sequence* sequence, absl::Time now, SchedulePlan* plan);
  bool CutToPages(Sequence* sequence);
  void NoteScheduled(Sequence* sequence, int32_t num_planned, int32_t sample, absl::Time now);
  void AddScores(const Sequence& sequence, ScheduledSequence* entry, SchedulePlan* plan) const;
  int32_t AddSample(const Sequence& sequence, int32_t num_tokens, int32_t logits_row, SchedulePlan* plan) const;
  void AddExtras(const Sequence& sequence, int32_t num_tokens, SchedulePlan* plan) const;

  // --- drafts.cc: speculation
  int32_t MaxDrafts(const SequenceGroup& group) const;
  void Draft(Sequence* sequence);
  int32_t TakeDrafts(Sequence* sequence);
  void AddDrafts(ScheduledSequence* entry, SchedulePlan* plan);
  void CommitDrafts(const ScheduledSequence& entry, const StepResult& result, absl::Time now, StepOutputs* outputs);
  void WeighDrafts();

  // --- admission.cc: from waiting to running
  void Admit(bool offline);
  Sequence* AdmitFrom(Lane* lane, bool offline);
  Sequence* FillWindow(Lane* lane, bool offline);
  void Probe(Sequence* sequence);
  bool HasSlotFor(Sequence* sequence);
  // Blocks that starts leave unused for those that run already; none if nothing runs, so that what fits starts.
  int32_t BlocksKept() const;
  bool SurelyLacksBlocks(const Sequence& sequence) const;
  int32_t CacheableTokens(const Sequence& sequence) const;
  bool TryAdmit(Sequence* sequence, bool may_interrupt);
  // fork.cc
  struct ForkSource {
    const Sequence* parent = nullptr;
    int32_t num_tokens = 0;
  };
  ForkSource FindForkSource(const Sequence& sequence) const;
  PrefixMatch TakePrefix(Sequence* sequence);
  void Start(Sequence* sequence);
  void NoteStart(const Sequence& sequence);
  void NoteAdmitted(SequenceGroup* group, const PrefixMatch& match);

  // --- in_flight_sharing.cc: waiting for what another computes
  // What a running sequence will have computed of a waiting one's tokens after this plan, and after its last useful
  // one.
  struct Offer {
    Sequence* producer = nullptr;
    int32_t reach = 0, end = 0;  // leading tokens
    bool rides = false;          // also the row that the first token is sampled from
  };
  bool Follows(Sequence* sequence);
  bool IsFollowing(const Sequence& sequence) const { return sequence.following_round == round_; }
  Offer BestOffer(const Sequence& sequence) const;
  bool IsWorthWaiting(const Sequence& sequence, const Offer& offer) const;
  int32_t OwnChunk(const Sequence& sequence) const;
  void SealForFollowers(Sequence* producer);

  // --- riders.cc: sampling from a row that another computes
  bool MayRide(const Sequence& sequence, const Sequence& producer) const;
  void AddRiders(ScheduledSequence* entry, absl::Time now, SchedulePlan* plan);
  void RideSiblings(SequenceGroup* group, int32_t logits_row, absl::Time now, SchedulePlan* plan);
  void WakeSiblings(SequenceGroup* group);
  void RideEqualPrompts(const Sequence& producer, int32_t logits_row, absl::Time now, SchedulePlan* plan);
  bool HasRoomToRide(const Sequence& sequence, const SchedulePlan& plan) const;
  void Ride(Sequence* sequence, int32_t logits_row, absl::Time now, SchedulePlan* plan);
  void ForkForRiders(Sequence* producer, absl::Span<const PlanRider> riders);
  void SendBack(absl::Span<const PlanRider> riders);

  // --- preemption.cc: from running to waiting
  bool MakeRoom(Sequence* sequence);
  bool MayPreempt();
  enum class Eligible { kRankedAfter, kInterruptible };
  // `needed_blocks`: that the requester lacks; 0: it needs a place in the batch only.
  Sequence* PickVictim(const Sequence* requester, Eligible eligible, int32_t needed_blocks) const;
  bool IsEligible(const Sequence& victim, const Sequence& requester, Eligible eligible) const;
  int32_t FirstOwnBlock(const Sequence& sequence) const;
  int32_t OwnBlocks(const Sequence& sequence) const;
  // Lost for each token that stays findable: it may be evicted before its sequence comes back.
  static constexpr double kFindableLoss = 0.25;
  double LostWork(const Sequence& sequence, int32_t needed_blocks) const;
  double RecomputedTokens(const Sequence& sequence, int32_t needed_blocks) const;
  bool InterruptForBlocks(Sequence* sequence);
  bool AnyInterruptible(const Sequence& urgent) const;
  void Preempt(Sequence* sequence, PreemptReason reason, const Sequence* requester);

  // --- host_copies.cc
  double ComputeSeconds(int32_t start, int32_t num_tokens) const;
  void WeighHostCopies();
  bool IsSwapWorthwhile(const Sequence& sequence) const;
  int32_t BlocksToSwap(const Sequence& sequence) const;
  double TokensOfSwap(const Sequence& sequence, int32_t needed_blocks) const;
  void ReleaseForLater(Sequence* sequence);
  bool UsesCache(const Sequence& sequence) const;
  int64_t NumHostCopies(const SchedulePlan& plan) const;
  double LearnHostCopies(const SchedulePlan& plan, const StepResult& result);
  void DropFailedCopies(const SchedulePlan& plan, const absl::Status& status, absl::Time now, StepOutputs* outputs);

  // --- commit.cc: what a step gave
  void CommitSequence(const ScheduledSequence& entry, absl::Span<const PlanRider> riders, const StepResult& result,
                      absl::Time now, StepOutputs* outputs);
  void CommitEnded(const ScheduledSequence& entry, absl::Span<const PlanRider> riders, const StepResult& result,
                   absl::Time now, StepOutputs* outputs);
  void CommitRiders(absl::Span<const PlanRider> riders, const StepResult& result, absl::Time now, StepOutputs* outputs);
  bool CommitScores(const ScheduledSequence& entry, const StepResult& result, absl::Time now, StepOutputs* outputs);
  void CommitSample(Sequence* sequence, int32_t sample, const StepResult& result, absl::Time now, StepOutputs* outputs);
  void CommitConstrained(Sequence* sequence, const SampledToken& token, const ConstrainedSample& constrained,
                         const StepResult& result, absl::Time now, StepOutputs* outputs);
  void CommitToken(Sequence* sequence, const SampledToken& token, bool ends, const StepResult& result, absl::Time now,
                   StepOutputs* outputs);
  void SetStop(const SequenceGroup& group, int32_t token_id, SequenceOutput* event) const;

  // --- beams.cc: beam search
  static std::unique_ptr<BeamGroup> MakeBeams(const SequenceGroup& group);
  // Runs, and has nothing to compute until the other beams of its request are as far.
  static bool IsIdleBeam(const Sequence& sequence) {
    return sequence.group->beams != nullptr && sequence.state == SequenceState::kRunning &&
           sequence.num_uncomputed() == 0;
  }
  void CommitBeam(Sequence* sequence, const SampledToken& token, const StepResult& result, absl::Time now,
                  StepOutputs* outputs);
  void MoveBeams(SequenceGroup* group);
  void ForkBeam(const Sequence& from, Sequence* to);
  void FinishBeams(SequenceGroup* group, absl::Time now, StepOutputs* outputs);
  bool PreemptIdleBeam();

  // Of a plan.
  int64_t max_samples() const {
    const int64_t drafts = int64_t{options_.max_num_seqs} * max_drafts_;
    return options_.max_num_seqs + std::min<int64_t>(drafts, options_.max_num_batched_tokens);
  }

  const SchedulerOptions options_;
  const int32_t max_drafts_ = options_.speculation == SpeculationMode::kOff ? 0 : options_.max_drafts;
  const SequenceLimits limits_;
  BlockManager* const blocks_;
  SchedulerObserver* observer_ = nullptr;

  absl::flat_hash_map<uint64_t, std::unique_ptr<SequenceGroup>> groups_;  // unfinished, by handle
  std::vector<std::unique_ptr<SequenceGroup>> finished_groups_;           // while plans in flight hold them
  std::vector<Sequence*> running_;  // in order of admission; others than kRunning are dropped by CleanUp
  bool running_changed_ = false;    // running_ holds such others
  int32_t num_running_ = 0;         // sequences in state kRunning
  StepTimeModel step_time_;
  HostCopyCost host_copy_cost_;
  const std::unique_ptr<SchedulingPolicy> policy_;
  WaitingQueue waiting_;
  AdmissionRate admission_rate_;
  int32_t num_offline_ = 0;                                            // live requests
  absl::btree_map<std::pair<bool, int32_t>, int32_t> running_levels_;  // running sequences by class and priority

  // Scratch of Schedule.
  std::vector<Sequence*> order_;
  std::vector<Sequence*> prefills_;
  std::vector<Sequence*> prefills_in_flight_;
  std::vector<Sequence*> window_;
  int32_t places_kept_ = 0;  // for those that follow and rank before the head of window_
  std::vector<SequenceGroup*> hopeless_;
  BlockTable probe_table_;
  std::vector<BlockCopy> copies_;  // for the next plan that is not empty: what they fill may be in use by then
  StepBudget budget_;
  StepLoad undrafted_load_;     // of decodes in the latest plan, one row each
  double least_chance_ = 0;     // that a draft must have to be accepted
  bool preempted_ = false;      // some sequence was, or must be
  bool plans_prefill_ = false;  // some row that PlanRunning has given is of a prompt, or of more than one token

  int64_t evictions_seen_ = -1;  // by SpareWaiting; -1: none of those that wait now was looked at

  int64_t step_ = 0, committed_step_ = 0;  // of the latest plan made, and committed or failed
  bool must_drain_ = false;  // the next plan is made with none in flight: it preempts, or this one copies to the host
  int64_t round_ = 1;        // one more than calls of Schedule, also those that gave an empty plan
  uint64_t num_arrivals_ = 0;
  absl::Time next_deadline_ = absl::InfiniteFuture();
  SchedulerStats stats_;
};

}  // namespace quire
