#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/trace/policy_comparison.h"
#include "scheduler/trace/replay.h"
#include "scheduler/trace/trace_file.h"
#include "scheduler/trace/workload.h"
#include "tests/testing/recorded_run.h"
#include "tests/testing/scheduler_harness.h"
#include "tests/testing/sim_loop.h"
#include "tests/testing/trace_input.h"

namespace quire {
namespace {

SamplingParams RandomParams(std::mt19937& random) {
  SamplingParams params;
  params.n = random() % 3 == 0 ? static_cast<int32_t>(1 + random() % 4) : 1;
  params.seed = random();
  params.max_tokens = static_cast<int32_t>(1 + random() % 40);
  params.min_tokens = random() % 3 == 0 ? static_cast<int32_t>(random() % (params.max_tokens + 1)) : 0;
  params.ignore_eos = random() % 4 == 0;
  if (random() % 4 == 0) params.stop_token_ids = {static_cast<int32_t>(random() % FakeRunner::kVocabSize)};
  params.logprobs = 0;
  if (random() % 6 == 0) params.prompt_logprobs = 0;
  return params;
}

// A busy run with everything in it that a scheduler can meet; its trace.
std::string BusyTrace(HarnessOptions options, uint32_t seed, int32_t num_requests = 30) {
  options.record = true;
  std::mt19937 random(seed);
  SchedulerHarness h(options);
  int32_t added = 0;
  uint64_t last = 0;
  for (int step = 0; (added < num_requests || h.scheduler.HasWork()) && step < 20000; ++step) {
    if (added < num_requests && random() % 2 == 0) {
      const absl::Time deadline = random() % 8 == 0 ? h.now + absl::Seconds(random() % 60) : absl::InfiniteFuture();
      last = h.Add(Ids(static_cast<int32_t>(1 + random() % 70), static_cast<int32_t>(random() % 3)),
                   RandomParams(random), static_cast<int32_t>(random() % 3), deadline);
      ++added;
    }
    if (last > 0 && random() % 20 == 0) h.Abort(1 + random() % last);
    if (last > 0 && random() % 20 == 0) h.AbortSequence(1 + random() % last, static_cast<int32_t>(random() % 4));
    if (random() % 40 == 0) h.blocks.DropPrefix(RootHash(h.context), Ids(static_cast<int32_t>(random() % 12), 1));
    if (random() % 60 == 0) h.blocks.DropAll();
    if (random() % 60 == 0) h.blocks.SetTenantQuota(1, static_cast<int32_t>(random() % 8));
    if (!h.Schedule()) continue;
    if (random() % 60 == 0) {
      h.FailStep(absl::InternalError("the device fell over"));
    } else {
      h.Commit();
    }
  }
  EXPECT_FALSE(h.scheduler.HasWork());
  return h.record->Finish();
}

const HarnessOptions kTinyPool = {.num_blocks = 24, .max_num_batched_tokens = 64};

struct Trace {
  TraceHeader header;
  std::vector<TraceRecord> records;
};

Trace Read(const std::string& bytes) {
  Trace trace;
  auto reader = TraceReader::Open(bytes);
  EXPECT_EQ(reader.status(), absl::OkStatus());
  trace.header = reader->header();
  do {
    const absl::Status status = reader->Next(&trace.records.emplace_back());
    EXPECT_EQ(status, absl::OkStatus());
    if (!status.ok()) break;
  } while (trace.records.back().call != TraceCall::kEnd);
  return trace;
}

std::string Write(const Trace& trace) {
  TraceString out;
  TraceWriter writer(trace.header, {}, &out);
  for (const TraceRecord& record : trace.records) {
    if (record.call == TraceCall::kEnd) break;
    writer.Take(record);
  }
  writer.Finish();
  EXPECT_EQ(writer.status(), absl::OkStatus());
  return out.bytes();
}

TEST(ScheduleTraceTest, EveryPlanAndDecisionIsReproduced) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const std::string bytes = BusyTrace(seed % 2 == 0 ? kTinyPool : HarnessOptions{}, seed);
    const auto report = VerifyTrace(bytes);
    ASSERT_EQ(report.status(), absl::OkStatus());
    EXPECT_TRUE(report->verified()) << report->damage << report->broken
                                    << (report->difference ? report->difference->ToString() : "");
    EXPECT_GT(report->steps, 50);
    EXPECT_EQ(report->end, TraceEnd::kStopped);
    EXPECT_EQ(report->lost_records, 0);
  }
}

TEST(ScheduleTraceTest, EveryKindOfCallAndDecisionIsInIt) {
  std::map<TraceCall, int> calls;
  std::map<TraceDecision::Kind, int> decisions;
  for (uint32_t seed = 0; seed < 10; ++seed) {
    for (const TraceRecord& record : Read(BusyTrace(kTinyPool, seed)).records) {
      ++calls[record.call];
      for (const TraceDecision& decision : record.decisions) ++decisions[decision.kind];
    }
  }
  for (const TraceCall call : {TraceCall::kAdd, TraceCall::kAbort, TraceCall::kAbortSequence, TraceCall::kSchedule,
                               TraceCall::kCommit, TraceCall::kFailStep, TraceCall::kSetTenantQuota,
                               TraceCall::kDropPrefix, TraceCall::kDropAll, TraceCall::kEnd}) {
    EXPECT_GE(calls[call], 5) << static_cast<int>(call);
  }
  for (const TraceDecision::Kind kind : {TraceDecision::Kind::kAdmitted, TraceDecision::Kind::kPreempted,
                                         TraceDecision::Kind::kFollows, TraceDecision::Kind::kEnded}) {
    EXPECT_GE(decisions[kind], 5) << static_cast<int>(kind);
  }
}

TEST(ScheduleTraceTest, ReadingAndWritingAgree) {
  const std::string bytes = BusyTrace(kTinyPool, 3);
  EXPECT_EQ(Write(Read(bytes)), bytes);
}

// The check can fail: with another option the first plan that it changes is named.
TEST(ScheduleTraceTest, AChangedOptionMakesADifferenceAtANamedStep) {
  const std::string bytes = BusyTrace(kTinyPool, 5);
  const Trace trace = Read(bytes);
  const std::vector<std::pair<const char*, void (*)(TraceHeader&)>> changes = {
      {"max_num_seqs", [](TraceHeader& h) { h.scheduler.max_num_seqs = 2; }},
      {"max_num_batched_tokens", [](TraceHeader& h) { h.scheduler.max_num_batched_tokens = 63; }},
      {"policy", [](TraceHeader& h) { h.scheduler.policy = PolicyKind::kFcfs; }},
      {"num_blocks", [](TraceHeader& h) { h.blocks.num_blocks = 23; }},
      {"enable_prefix_cache", [](TraceHeader& h) { h.blocks.enable_prefix_cache = false; }},
      {"min_partial_tokens", [](TraceHeader& h) { h.blocks.min_partial_tokens = 5; }},
      {"eos_token_ids", [](TraceHeader& h) { h.limits.eos_token_ids.clear(); }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    Trace changed = trace;
    change(changed.header);
    const auto report = VerifyTrace(Write(changed));
    ASSERT_EQ(report.status(), absl::OkStatus());
    EXPECT_FALSE(report->verified());
    ASSERT_TRUE(report->difference.has_value()) << report->damage;
    EXPECT_GE(report->difference->step, 1);
    EXPECT_GE(report->difference->record, 1);
    EXPECT_FALSE(report->difference->field.empty());
    EXPECT_NE(report->difference->recorded, report->difference->replayed);
  }
}

TEST(ScheduleTraceTest, AChangedResultIsNoticed) {
  Trace trace = Read(BusyTrace(kTinyPool, 6));
  // An eos where there was none ends a sequence.
  for (TraceRecord& record : trace.records) {
    if (record.call != TraceCall::kCommit || record.sampled.empty() || !record.decisions.empty()) continue;
    for (int32_t& id : record.sampled) id = trace.header.limits.eos_token_ids[0];
    break;
  }
  const auto report = VerifyTrace(Write(trace));
  ASSERT_EQ(report.status(), absl::OkStatus());
  ASSERT_TRUE(report->difference.has_value());
}

TEST(ScheduleTraceTest, ATraceThatIsCutOffIsVerifiedUpToThere) {
  const std::string bytes = BusyTrace(kTinyPool, 7, 8);
  int64_t steps = 0;
  for (size_t length = 0; length < bytes.size(); length += 1 + length / 400) {
    const auto report = VerifyTrace(absl::string_view(bytes).substr(0, length), {.check_invariants = false});
    if (!report.ok()) {
      EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(steps, 0);
      continue;
    }
    EXPECT_FALSE(report->verified());
    EXPECT_FALSE(report->ended);
    EXPECT_FALSE(report->difference.has_value());
    EXPECT_EQ(report->damage.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(std::string(report->damage.message()).find("byte "), std::string::npos);
    EXPECT_GE(report->steps, steps);
    steps = report->steps;
  }
  EXPECT_GT(steps, 10);
}

TEST(ScheduleTraceTest, WhatFollowsTheEndIsDamage) {
  const std::string bytes = BusyTrace({}, 1, 3) + "x";
  const auto report = VerifyTrace(bytes);
  ASSERT_EQ(report.status(), absl::OkStatus());
  EXPECT_FALSE(report->verified());
  EXPECT_EQ(report->damage.code(), absl::StatusCode::kDataLoss);
}

// Whatever the bytes are, nothing crashes or runs away.
TEST(ScheduleTraceTest, MutationsAreSurvived) {
  std::mt19937 random(8);
  int replayed = 0;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::string bytes = BusyTrace(kTinyPool, seed, 6);
    const auto use = [](const std::string& trace) {
      return testing::UseAsTrace(reinterpret_cast<const uint8_t*>(trace.data()), trace.size());
    };
    EXPECT_GT(use(bytes), 20);
    for (int round = 0; round < 300; ++round) {
      std::string changed = bytes;
      for (uint32_t change = random() % 3 + 1; change > 0; --change) {
        const size_t at = random() % std::min<size_t>(changed.size(), round % 2 == 0 ? 300 : changed.size());
        switch (random() % 4) {
          case 0:
            changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
            break;
          case 1:
            changed[at] = static_cast<char>(random());
            break;
          case 2:
            changed.erase(at, 1 + random() % 4);
            break;
          case 3:
            changed.insert(at, changed.substr(random() % changed.size(), random() % 16));
            break;
        }
      }
      replayed += use(changed) > 10;
    }
  }
  EXPECT_GT(replayed, 50);
}

TEST(ScheduleTraceTest, AFullSinkEndsTheTraceAndTheRestIsCounted) {
  const SequenceLimits limits = {.max_model_len = 128, .eos_token_ids = {}};
  const BlockManagerOptions blocks_options = Recordable({.num_blocks = 200, .block_size = 8});
  BlockManager blocks(blocks_options);
  Scheduler scheduler({}, limits, &blocks);
  TraceString bytes;
  bytes.max_bytes = 3000;
  TraceWriter writer({{}, limits, blocks_options}, blocks_options.token_order, &bytes);
  TraceRecorder recorder(&blocks, blocks_options.token_order, &writer);
  blocks.SetObserver(&recorder);
  scheduler.SetObserver(&recorder);
  FakeRunner runner(&blocks, 200);
  SchedulePlan plan;
  StepResult result;
  StepOutputs outputs;
  for (uint64_t i = 1; i <= 10; ++i) {
    EngineRequest request = MakeEngineRequest(Ids(20, static_cast<int32_t>(i)), Tokens(60), 8, {});
    request.handle = i;
    ASSERT_EQ(scheduler.Add(request), absl::OkStatus());
  }
  absl::Time now = absl::UnixEpoch();
  while (scheduler.HasWork()) {
    scheduler.Schedule(now += absl::Milliseconds(10), &plan, &outputs);
    runner.Run(plan, &result);
    scheduler.Commit(plan, result, now, &outputs, 0.01);
  }
  writer.Finish();
  EXPECT_LE(bytes.bytes().size(), 3000u + kMaxTraceEndBytes);
  const auto report = VerifyTrace(bytes.bytes());
  ASSERT_EQ(report.status(), absl::OkStatus());
  EXPECT_TRUE(report->verified());
  EXPECT_EQ(report->end, TraceEnd::kFull);
  EXPECT_GT(report->steps, 5);
  EXPECT_LT(report->steps, scheduler.stats().steps);
  const int64_t all = 10 + 2 * scheduler.stats().steps;
  EXPECT_EQ(report->lost_records, all - (report->records - 1));
}

TEST(ScheduleTraceTest, IdsAndRootsAreReplaced) {
  SchedulerHarness h({.record = true});
  const std::vector<int32_t> prompt = Ids(40);
  const uint64_t handle = h.Add(prompt, Tokens(30));
  h.RunAll(100);
  const std::vector<int32_t> output = h.seen(handle).ids[0];
  const Trace trace = Read(h.record->Finish());
  const TokenPermutation images({11, 12}, 17);  // Recordable's
  std::vector<int32_t> recorded_output;
  for (const TraceRecord& record : trace.records) {
    if (record.call == TraceCall::kAdd) {
      ASSERT_EQ(record.request.prompt_ids.size(), prompt.size());
      int equal = 0;
      for (size_t i = 0; i < prompt.size(); ++i) {
        EXPECT_EQ(record.request.prompt_ids[i], images(prompt[i]));
        equal += record.request.prompt_ids[i] == prompt[i];
      }
      EXPECT_LE(equal, 2);
      EXPECT_NE(record.request.root_hash, RootHash({}));
    }
    if (record.call == TraceCall::kCommit) {
      recorded_output.insert(recorded_output.end(), record.sampled.begin(), record.sampled.end());
    }
  }
  ASSERT_EQ(recorded_output.size(), output.size());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_EQ(recorded_output[i], images(output[i]));
}

// What scheduler/trace/README.md says.
TEST(ScheduleTraceTest, AStepOfDecodesIsCompact) {
  constexpr int32_t kSequences = 64, kSteps = 200;
  SimLoop loop({.max_model_len = 1024, .record = true});
  for (int32_t i = 0; i < kSequences; ++i) loop.Add({.prompt_len = 32, .max_tokens = kSteps + 20});
  loop.RunAll(1000);
  const std::string bytes = loop.record->Finish();
  auto reader = TraceReader::Open(bytes);
  ASSERT_EQ(reader.status(), absl::OkStatus());
  TraceRecord record;
  int64_t begin = 0, end = 0, step = 0, ids = 0;
  while (reader->Next(&record).ok() && record.call != TraceCall::kEnd) {
    if (record.call == TraceCall::kSchedule) ++step;
    if (step == 10 && record.call == TraceCall::kSchedule) begin = reader->offset();
    if (step == 10 + kSteps && record.call == TraceCall::kSchedule) end = reader->offset();
    if (step >= 10 && step < 10 + kSteps && record.call == TraceCall::kCommit) {
      for (const int32_t id : record.sampled) ids += id + 1 < 128 ? 1 : id + 1 < 16384 ? 2 : 3;
    }
  }
  ASSERT_GT(end, begin);
  const double per_step = static_cast<double>(end - begin - ids) / kSteps;
  std::printf("%.1f bytes a step of %d decodes, without ids\n", per_step, kSequences);
  EXPECT_LE(per_step, 52);
}

// Random requests whose tokens are random too; the record is replayed at the end.
void RunRandomly(const std::vector<int32_t>& windows, int32_t plans_in_flight) {
  const SchedulerOptions options = {
      .max_num_seqs = 16, .max_num_batched_tokens = 128, .max_plans_in_flight = plans_in_flight};
  const SequenceLimits limits = {.max_model_len = 200, .eos_token_ids = {7}};
  const BlockManagerOptions blocks_options =
      windows.empty() ? Recordable({.num_blocks = 50, .block_size = 8})
                      : Recordable({.num_blocks = 240, .block_size = 8, .group_windows = windows, .num_pages = 60});
  BlockManager blocks(blocks_options);
  Scheduler scheduler(options, limits, &blocks);
  RecordedRun record(options, limits, blocks_options, &blocks, &scheduler);
  std::mt19937 random(4);
  SchedulePlan plans[2];
  StepResult result;
  StepOutputs outputs;
  absl::Time now = absl::UnixEpoch();
  int32_t added = 0;
  int64_t scheduled = 0, committed = 0, both = 0;
  while (added < 60 || scheduler.HasWork()) {
    if (added < 60 && random() % 3 == 0) {
      EngineRequest request =
          MakeEngineRequest(Ids(static_cast<int32_t>(1 + random() % 100), added % 3), RandomParams(random), 8, {});
      request.handle = ++added;
      ASSERT_EQ(scheduler.Add(request), absl::OkStatus());
    }
    SchedulePlan& plan = plans[scheduled % 2];
    scheduler.Schedule(now += absl::Milliseconds(5), &plan, &outputs);
    scheduled += !plan.empty();
    if (random() % 10 == 0) scheduler.Abort(1 + random() % (added + 1), now, &outputs);
    both += scheduler.num_in_flight() == 2;
    if (scheduled == committed || (!plan.empty() && scheduler.num_in_flight() < plans_in_flight)) continue;
    const SchedulePlan& earliest = plans[committed++ % 2];
    result.samples.assign(earliest.samples.size(), {});
    for (SampledToken& token : result.samples) token.token_id = static_cast<int32_t>(random() % 50);
    result.scores.assign(earliest.scores.size(), {});
    scheduler.Commit(earliest, result, now, &outputs, 0.005);
    ASSERT_EQ(scheduler.CheckInvariants(), absl::OkStatus());
  }
  EXPECT_GT(scheduler.stats().preemptions, 0);
  EXPECT_GT(scheduler.stats().prefix_hit_tokens, 0);
  EXPECT_EQ(both > 20, plans_in_flight == 2);
}

TEST(ScheduleTraceTest, LayerGroupsReplay) {
  RunRandomly({0, 24}, 1);
  RunRandomly({24, 40}, 1);
}

TEST(ScheduleTraceTest, TwoPlansInFlightReplay) {
  RunRandomly({}, 2);
  RunRandomly({0, 24}, 2);
}

// The workload of a trace, served as it was, comes out as it did; other policies serve it differently.
TEST(PolicyComparisonTest, TheRecordedPolicyComesOutAsRecordedAndOthersDiffer) {
  SimLoopOptions options;
  options.scheduler.policy = PolicyKind::kFcfs;
  options.num_blocks = 600;
  options.record = true;
  SimLoop loop(options);
  std::mt19937 random(2);
  double ttft = 0;
  for (int i = 0; i < 120; ++i) {
    const bool greedy = i % 5 != 0;
    loop.Add({.prompt_len = static_cast<int32_t>(greedy ? 300 + random() % 200 : 40),
              .max_tokens = static_cast<int32_t>(20 + random() % 60),
              .prompt_seed = static_cast<int32_t>(random() % 30),
              .tenant = greedy ? "greedy" : "modest"});
    for (uint32_t step = random() % 3; step > 0; --step) loop.Step();
  }
  loop.RunAll(20000);
  for (const auto& [handle, seen] : loop.all_seen())
    ttft += absl::ToDoubleSeconds(seen.first_token - seen.arrival) / 120;
  const int64_t preemptions = loop.scheduler.stats().preemptions;
  const std::string bytes = loop.record->Finish();

  const auto workload = ReadWorkload(bytes);
  ASSERT_EQ(workload.status(), absl::OkStatus());
  EXPECT_TRUE(workload->complete);
  EXPECT_TRUE(workload->timed);
  ASSERT_EQ(workload->requests.size(), 120u);
  const PolicyOutcome fcfs = SimulatePolicy(*workload, {.policy = PolicyKind::kFcfs});
  EXPECT_EQ(fcfs.completed, 120);
  EXPECT_EQ(fcfs.good, 120);
  EXPECT_NEAR(fcfs.ttft.mean, ttft, 0.25 * ttft);
  EXPECT_EQ(fcfs.output_tokens, loop.scheduler.stats().generation_tokens);
  if (preemptions == 0) {
    EXPECT_LE(fcfs.preemptions, 20);
  }

  const PolicyOutcome fair = SimulatePolicy(*workload, {.policy = PolicyKind::kFair});
  EXPECT_EQ(fair.completed, 120);
  EXPECT_LT(fair.tenants.at("modest").ttft.mean, fcfs.tenants.at("modest").ttft.mean);
  EXPECT_GE(fair.fairness, 0.5);
  EXPECT_LE(fair.fairness, 1);

  const PolicyOutcome small = SimulatePolicy(*workload, {.policy = PolicyKind::kFcfs, .num_blocks = 100});
  EXPECT_GT(small.preemptions, fcfs.preemptions);
  EXPECT_GT(small.recomputed_tokens, 0);
  EXPECT_GT(small.ttft.mean, fcfs.ttft.mean);
  const PolicyOutcome none = SimulatePolicy(*workload, {.policy = PolicyKind::kFcfs, .num_blocks = 1});
  EXPECT_EQ(none.refused, none.requests);
}

TEST(PolicyComparisonTest, AbortedRequestsAndBeamsAreServedTheirLength) {
  SchedulerHarness h({.max_model_len = 128, .record = true});
  const uint64_t aborted = h.Add(Ids(20), Tokens(60));
  SamplingParams beams = Tokens(10);
  beams.beam_width = 3;
  h.Add(Ids(20, 2), beams);
  for (int i = 0; i < 6; ++i) h.Step();
  h.Abort(aborted);
  h.RunAll(100);
  const auto workload = ReadWorkload(h.record->Finish());
  ASSERT_EQ(workload.status(), absl::OkStatus());
  EXPECT_FALSE(workload->timed);
  const PolicyOutcome outcome = SimulatePolicy(*workload, {.policy = PolicyKind::kFair});
  EXPECT_EQ(outcome.completed, 2);
  EXPECT_EQ(outcome.output_tokens, 6 + 3 * 10);
}

}  // namespace
}  // namespace quire
