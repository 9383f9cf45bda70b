#include "scheduler/trace/replay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "scheduler/trace/trace_codec.h"

namespace quire {
namespace {

BlockManagerOptions OptionsOf(const TraceHeader& header, const ReplayOptions& options) {
  BlockManagerOptions blocks = header.blocks;
  blocks.chain_hash = options.chain_hash;
  return blocks;
}

absl::Status Illegal(absl::string_view what) {
  return absl::DataLossError(absl::StrFormat("schedule trace: %s", what));
}

const char* Name(TraceCall call) {
  constexpr const char* kNames[] = {
      "",         "Add",         "Abort",          "AbortSequence", "SetHeld",    "DropExpired", "Schedule", "Commit",
      "FailStep", "AdvanceTime", "SetTenantQuota", "DropPrefix",    "DropTenant", "DropAll",     "End"};
  return kNames[static_cast<int>(call)];
}

bool IsDrop(TraceCall call) {
  return call == TraceCall::kDropPrefix || call == TraceCall::kDropTenant || call == TraceCall::kDropAll;
}

// A miss that MissMemory may or may not remember.
bool IsUnfound(MissReason miss) {
  return miss == MissReason::kEvicted || miss == MissReason::kOtherRoot || miss == MissReason::kUnderMinimum ||
         miss == MissReason::kNeverSeen;
}

// The replay's decisions with the recorded miss reasons where only memory makes the difference.
std::vector<TraceDecision> WithRecordedMisses(const std::vector<TraceDecision>& recorded,
                                              std::vector<TraceDecision> replayed, int64_t* other_miss_reasons) {
  for (size_t i = 0; i < std::min(recorded.size(), replayed.size()); ++i) {
    if (recorded[i].miss == replayed[i].miss || !IsUnfound(recorded[i].miss) || !IsUnfound(replayed[i].miss)) continue;
    replayed[i].miss = recorded[i].miss;
    ++*other_miss_reasons;
  }
  return replayed;
}

TracePrinter::Fields FieldsOf(const TraceRecord& record) {
  TracePrinter::Fields fields;
  TracePrinter printer(&fields);
  RecordFields(printer, record);
  return fields;
}

}  // namespace

std::string ReplayDifference::ToString() const {
  return absl::StrFormat("step %d, record %d (%s) at byte %d: %s was recorded as %s and is %s", step, record, call,
                         offset, field, recorded, replayed);
}

TraceReplay::TraceReplay(const TraceHeader& header, const ReplayOptions& options)
    : header_(header),
      blocks_(OptionsOf(header, options)),
      scheduler_(header.scheduler, header.limits, &blocks_),
      recorder_(&blocks_, {}, this) {
  blocks_.SetObserver(&recorder_);
  scheduler_.SetObserver(&recorder_);
}

std::vector<BlockHash> TraceReplay::HashPrompt(const EngineRequest& request) const {
  std::vector<BlockHash> hashes;
  const absl::Span<const int32_t> ids(request.prompt_ids);
  const size_t block_size = blocks_.block_size();
  for (size_t begin = 0; begin + block_size <= ids.size(); begin += block_size) {
    const BlockHash& parent = hashes.empty() ? request.root_hash : hashes.back();
    hashes.push_back(blocks_.chain_hash()(parent, ids.subspan(begin, block_size)));
  }
  return hashes;
}

absl::Status TraceReplay::Add(const TraceRecord& record) {
  EngineRequest request = record.request;
  request.prompt_hashes = HashPrompt(request);
  const absl::Status added = scheduler_.Add(std::move(request));
  return added.ok() ? added : Illegal(absl::StrFormat("Add is refused: %s", added.message()));
}

// What the constraints said.
absl::Status TraceReplay::FillConstrained(const TraceRecord& record, const SchedulePlan& plan) {
  result_.constrained.clear();
  result_.forced = record.forced;
  int64_t forced = 0;
  auto next = record.constrained.begin();
  plan.ForEachSample([&](const Sequence& sequence, int32_t sample, int32_t num_drafts) {
    if (!sequence.group->request.is_constrained) return;
    for (const int32_t end = sample + num_drafts; sample <= end; ++sample) {
      if (next == record.constrained.end() || next->sample != sample) return;
      result_.constrained.push_back({.sample = sample,
                                     .forced_begin = static_cast<int32_t>(forced),
                                     .forced_count = next->forced_count,
                                     .ends = next->ends,
                                     .status = absl::Status(next->status_code, "the constraint failed")});
      forced += next->forced_count;
      ++next;
    }
  });
  if (next != record.constrained.end()) return Illegal("a sample has a constraint that its sequence has not");
  if (forced != static_cast<int64_t>(record.forced.size())) return Illegal("forced tokens are of no sample");
  return absl::OkStatus();
}

// What a step gave, as far as a scheduler looks at it.
absl::Status TraceReplay::FillResult(const TraceRecord& record, const SchedulePlan& plan) {
  if (record.sampled.size() != plan.samples.size() || record.num_scores != static_cast<int64_t>(plan.scores.size())) {
    return Illegal(absl::StrFormat("step %d has %d samples and %d scores, results are %d and %d", record.step,
                                   plan.samples.size(), plan.scores.size(), record.sampled.size(), record.num_scores));
  }
  result_.samples.assign(plan.samples.size(), {});
  for (size_t i = 0; i < record.sampled.size(); ++i) {
    result_.samples[i].token_id = record.sampled[i];
    result_.samples[i].bad_logits = record.sampled[i] < 0;
  }
  result_.scores.assign(plan.scores.size(), {});
  for (const int32_t i : record.bad_scores) result_.scores[i].bad_logits = true;
  result_.logprobs = record.beam_logprobs;
  result_.host_copy_seconds = record.host_copy_seconds;
  QUIRE_RETURN_IF_ERROR(FillConstrained(record, plan));
  size_t beams = 0;
  int64_t logprobs = 0;
  absl::Status status;
  plan.ForEachSample([&](const Sequence& sequence, int32_t sample, int32_t) {
    SampledToken& token = result_.samples[sample];
    if (sequence.group->beams == nullptr || token.bad_logits || !status.ok()) return;
    if (beams == record.beam_logprob_counts.size()) {
      status = Illegal("a beam has no log-probabilities");
      return;
    }
    token.logprobs_begin = static_cast<int32_t>(logprobs);
    token.logprobs_count = record.beam_logprob_counts[beams++];
    logprobs += token.logprobs_count;
    if (logprobs > static_cast<int64_t>(result_.logprobs.size()))
      status = Illegal("beams have too few log-probabilities");
  });
  return status;
}

// Commit or FailStep.
absl::Status TraceReplay::Finish(const TraceRecord& record) {
  if (in_flight_.empty() || in_flight_.front().step != record.step) {
    return Illegal(absl::StrFormat("step %d is not the earliest in flight", record.step));
  }
  SchedulePlan* const plan = &in_flight_.front();
  if (record.call == TraceCall::kFailStep) {
    scheduler_.FailStep(*plan, absl::Status(record.status_code, "the step failed"), record.now, &outputs_);
  } else {
    QUIRE_RETURN_IF_ERROR(FillResult(record, *plan));
    scheduler_.Commit(*plan, result_, record.now, &outputs_, record.step_seconds);
  }
  spare_.push_back(std::move(*plan));
  in_flight_.pop_front();
  return absl::OkStatus();
}

absl::Status TraceReplay::Apply(const TraceRecord& record) {
  latest_ = nullptr;
  outputs_.prompt_scores.clear();
  outputs_.sequences.clear();
  outputs_.logprobs.clear();
  if (record.call == TraceCall::kSetHeld && !in_flight_.empty()) return Illegal("SetHeld comes within a step");
  switch (record.call) {
    case TraceCall::kAdd:
      QUIRE_RETURN_IF_ERROR(Add(record));
      break;
    case TraceCall::kAbort:
      scheduler_.Abort(record.handle, record.now, &outputs_);
      break;
    case TraceCall::kAbortSequence:
      scheduler_.AbortSequence(record.handle, record.sequence_index, record.now, &outputs_);
      break;
    case TraceCall::kSetHeld:
      scheduler_.SetHeld(record.handle, record.held);
      break;
    case TraceCall::kDropExpired:
      scheduler_.DropExpired(record.now, &outputs_);
      break;
    case TraceCall::kSchedule: {
      if (static_cast<int32_t>(in_flight_.size()) >= header_.scheduler.max_plans_in_flight)
        return Illegal("Schedule comes while as many steps as may be are in flight");
      SchedulePlan plan;
      if (!spare_.empty()) {
        plan = std::move(spare_.back());
        spare_.pop_back();
      }
      in_flight_.push_back(std::move(plan));
      scheduler_.Schedule(record.now, &in_flight_.back(), &outputs_);
      if (in_flight_.back().empty()) {
        spare_.push_back(std::move(in_flight_.back()));
        in_flight_.pop_back();
      }
      break;
    }
    case TraceCall::kCommit:
    case TraceCall::kFailStep:
      QUIRE_RETURN_IF_ERROR(Finish(record));
      break;
    case TraceCall::kAdvanceTime:
      blocks_.AdvanceTime(record.now);
      break;
    case TraceCall::kSetTenantQuota:
      blocks_.SetTenantQuota(record.tenant, record.max_blocks);
      break;
    case TraceCall::kDropPrefix:
      blocks_.DropPrefix(record.root, record.tokens);
      break;
    case TraceCall::kDropTenant:
      blocks_.DropTenant(record.tenant);
      break;
    case TraceCall::kDropAll:
      blocks_.DropAll();
      break;
    case TraceCall::kEnd:
      break;
  }
  return absl::OkStatus();
}

std::optional<ReplayDifference> TraceReplay::Compare(const TraceRecord& record, int64_t* other_miss_reasons) const {
  ReplayDifference difference;
  difference.step = scheduler_.stats().steps;
  difference.call = Name(record.call);
  if (latest_ == nullptr) {
    if (record.call == TraceCall::kEnd) return std::nullopt;
    difference.field = "effect";
    difference.recorded = "some";
    difference.replayed = "none";
    return difference;
  }
  const bool same_plan = record.call != TraceCall::kSchedule || record.plan == latest_->plan;
  const bool same_drop = !IsDrop(record.call) || record.dropped_blocks == latest_->dropped_blocks;
  if (same_plan && same_drop && record.decisions == latest_->decisions) return std::nullopt;

  TraceRecord replayed = *latest_;
  replayed.decisions = WithRecordedMisses(record.decisions, latest_->decisions, other_miss_reasons);
  const TracePrinter::Fields a = FieldsOf(record), b = FieldsOf(replayed);
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at == a.end() && other == b.end()) return std::nullopt;
  difference.field = at != a.end() ? at->first : other->first;
  difference.recorded = at != a.end() ? at->second : "nothing";
  difference.replayed = other == b.end() ? "nothing" : other->first == difference.field ? other->second : other->first;
  return difference;
}

absl::StatusOr<ReplayReport> VerifyTrace(absl::string_view bytes, const ReplayOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::Open(bytes, options.limits));
  ReplayReport report;
  TraceReplay replay(reader.header(), options);
  TraceRecord record;
  while (!report.ended && report.damage.ok() && report.broken.ok() && !report.difference.has_value()) {
    report.damage = reader.Next(&record);
    if (report.damage.ok()) report.damage = replay.Apply(record);
    if (!report.damage.ok()) break;
    ++report.records;
    report.difference = replay.Compare(record, &report.other_miss_reasons);
    if (report.difference.has_value()) {
      report.difference->record = reader.number();
      report.difference->offset = reader.offset();
    }
    if (options.check_invariants) report.broken = replay.scheduler().CheckInvariants();
    report.ended = record.call == TraceCall::kEnd;
  }
  if (report.ended) {
    report.end = record.end;
    report.lost_records = record.lost_records;
  }
  report.stats = replay.scheduler().stats();
  report.blocks = replay.blocks().stats();
  report.steps = report.stats.steps;
  return report;
}

}  // namespace quire
