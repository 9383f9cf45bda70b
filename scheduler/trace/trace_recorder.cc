#include "scheduler/trace/trace_recorder.h"

#include <bit>
#include <cmath>

namespace quire {
namespace {

TraceSequence Of(const Sequence& sequence) { return {sequence.group->arrival_number, sequence.index}; }

void AddWord(uint64_t word, std::vector<int32_t>* out) {
  out->push_back(static_cast<int32_t>(word));
  out->push_back(static_cast<int32_t>(word >> 32));
}

}  // namespace

TraceRecorder::TraceRecorder(const BlockManager* blocks, const TokenPermutation& permutation, TraceSink* sink)
    : blocks_(blocks), permutation_(permutation), sink_(sink) {}

void TraceRecorder::Begin(TraceCall call) {
  record_.call = call;
  record_.decisions.clear();
  in_call_ = true;
}

void TraceRecorder::OnReturn() {
  in_call_ = false;
  sink_->Take(record_);
}

void TraceRecorder::OnAdd(const EngineRequest& request) {
  Begin(TraceCall::kAdd);
  EngineRequest& copy = record_.request;
  copy = request;
  copy.constraint = nullptr;
  MapIds(request.prompt_ids, &copy.prompt_ids);
  MapIds(request.params.stop_token_ids, &copy.params.stop_token_ids);
  copy.root_hash = MapRoot(request.root_hash);
}

void TraceRecorder::OnAbort(uint64_t handle, absl::Time now) {
  Begin(TraceCall::kAbort);
  record_.handle = handle;
  record_.now = now;
}

void TraceRecorder::OnAbortSequence(uint64_t handle, int32_t sequence_index, absl::Time now) {
  Begin(TraceCall::kAbortSequence);
  record_.handle = handle;
  record_.sequence_index = sequence_index;
  record_.now = now;
}

void TraceRecorder::OnSetHeld(uint64_t handle, bool held) {
  Begin(TraceCall::kSetHeld);
  record_.handle = handle;
  record_.held = held;
}

void TraceRecorder::OnDropExpired(absl::Time now) {
  Begin(TraceCall::kDropExpired);
  record_.now = now;
}

void TraceRecorder::OnSchedule(absl::Time now) {
  Begin(TraceCall::kSchedule);
  record_.now = now;
  digested_.clear();
}

void TraceRecorder::OnCommit(const SchedulePlan& plan, const StepResult& result, absl::Time now, double step_seconds) {
  Begin(TraceCall::kCommit);
  record_.now = now;
  record_.step = plan.step;
  record_.step_seconds = step_seconds;
  record_.host_copy_seconds = result.host_copy_seconds;
  record_.sampled.clear();
  for (const SampledToken& token : result.samples) {
    record_.sampled.push_back(token.bad_logits ? -1 : permutation_(token.token_id));
  }
  record_.num_scores = static_cast<int32_t>(result.scores.size());
  record_.bad_scores.clear();
  for (int32_t i = 0; i < record_.num_scores; ++i) {
    if (result.scores[i].bad_logits) record_.bad_scores.push_back(i);
  }
  record_.beam_logprob_counts.clear();
  record_.beam_logprobs.clear();
  plan.ForEachSample([&](const Sequence& sequence, int32_t sample, int32_t) {
    const SampledToken& token = result.samples[sample];
    if (sequence.group->beams == nullptr || token.bad_logits) return;
    record_.beam_logprob_counts.push_back(token.logprobs_count);
    for (int32_t i = 0; i < token.logprobs_count; ++i) {
      const TokenLogprob& logprob = result.logprobs[token.logprobs_begin + i];
      record_.beam_logprobs.push_back({permutation_(logprob.token_id), logprob.logprob});
    }
  });
  record_.constrained.clear();
  for (const ConstrainedSample& c : result.constrained) {
    record_.constrained.push_back({c.sample, c.forced_count, c.ends, c.status.code()});
  }
  MapIds(result.forced, &record_.forced);
}

void TraceRecorder::OnFailStep(const SchedulePlan& plan, const absl::Status& status, absl::Time now) {
  Begin(TraceCall::kFailStep);
  record_.now = now;
  record_.step = plan.step;
  record_.status_code = status.code();
}

TraceDecision& TraceRecorder::Decide(TraceDecision::Kind kind, const Sequence& sequence) {
  TraceDecision& decision = record_.decisions.emplace_back();
  decision.kind = kind;
  decision.sequence = Of(sequence);
  return decision;
}

void TraceRecorder::OnAdmitted(const Sequence& sequence, const PrefixMatch& match) {
  TraceDecision& decision = Decide(TraceDecision::Kind::kAdmitted, sequence);
  decision.num_tokens = match.num_tokens;
  decision.partial_tokens = match.partial_tokens;
  decision.host_blocks = match.host_blocks;
  decision.miss = match.miss;
  decision.missed_block = match.missed_block;
  AddBlocks(sequence.table, 0);
}

void TraceRecorder::OnFollows(const Sequence& sequence, const Sequence& producer, int32_t reach) {
  TraceDecision& decision = Decide(TraceDecision::Kind::kFollows, sequence);
  decision.num_tokens = reach;
  decision.has_other = true;
  decision.other = Of(producer);
}

void TraceRecorder::OnPreempted(const Sequence& victim, const Sequence* requester, PreemptReason reason) {
  TraceDecision& decision = Decide(TraceDecision::Kind::kPreempted, victim);
  decision.num_tokens = victim.num_computed;
  decision.preempt_reason = reason;
  decision.has_other = requester != nullptr;
  if (requester != nullptr) decision.other = Of(*requester);
}

void TraceRecorder::OnEnded(const Sequence& sequence, FinishReason reason, const absl::Status& error) {
  TraceDecision& decision = Decide(TraceDecision::Kind::kEnded, sequence);
  decision.finish_reason = reason;
  decision.status_code = error.code();
}

void TraceRecorder::OnPlan(const SchedulePlan& plan) {
  TracePlan& out = record_.plan;
  out.step = plan.step;
  out.evictions = blocks_->num_evictions() - evictions_;
  evictions_ = blocks_->num_evictions();
  out.sequences.clear();
  for (const ScheduledSequence& entry : plan.sequences) {
    out.sequences.push_back(
        {Of(*entry.sequence), entry.start, entry.num_tokens, entry.sample >= 0, entry.scores_count});
  }
  out.copies.assign(plan.copies.begin(), plan.copies.end());
  out.digest = plan.empty() ? BlockHash{} : Digest(plan);
}

void TraceRecorder::OnAdvanceTime(absl::Time now) {
  if (in_call_ || std::abs(absl::ToDoubleSeconds(now - absl::UnixEpoch())) > 1e15) return;
  Begin(TraceCall::kAdvanceTime);
  record_.now = now;
  OnReturn();
}

void TraceRecorder::OnSetTenantQuota(int32_t tenant, int32_t max_blocks) {
  Begin(TraceCall::kSetTenantQuota);
  record_.tenant = tenant;
  record_.max_blocks = max_blocks;
  OnReturn();
}

void TraceRecorder::OnDropPrefix(const BlockHash& root, absl::Span<const int32_t> tokens) {
  Begin(TraceCall::kDropPrefix);
  record_.root = MapRoot(root);
  MapIds(tokens, &record_.tokens);
}

void TraceRecorder::OnDropTenant(int32_t tenant) {
  Begin(TraceCall::kDropTenant);
  record_.tenant = tenant;
}

void TraceRecorder::OnDropAll() { Begin(TraceCall::kDropAll); }

void TraceRecorder::OnDropped(int32_t num_blocks) {
  record_.dropped_blocks = num_blocks;
  OnReturn();
}

void TraceRecorder::MapIds(absl::Span<const int32_t> ids, std::vector<int32_t>* images) const {
  images->clear();
  for (const int32_t id : ids) images->push_back(permutation_(id));
}

BlockHash TraceRecorder::MapRoot(const BlockHash& root) const {
  if (permutation_.is_identity()) return root;
  const int32_t words[] = {static_cast<int32_t>(root.low), static_cast<int32_t>(root.low >> 32),
                           static_cast<int32_t>(root.high), static_cast<int32_t>(root.high >> 32)};
  return ChainHash({permutation_.key()[0], permutation_.key()[1]}, words);
}

// The blocks of a table from one on, and with layer groups their pages.
void TraceRecorder::AddBlocks(const BlockTable& table, int32_t begin) {
  const GroupPages* pages = blocks_->pages();
  for (int32_t i = begin; i < table.size(); ++i) {
    const BlockId block = table.blocks()[i];
    digested_.push_back(static_cast<int32_t>(block));
    for (int32_t group = 0; pages != nullptr && group < pages->num_groups(); ++group) {
      digested_.push_back(static_cast<int32_t>(pages->page(group, block)));
    }
  }
}

void TraceRecorder::AddSampleRow(const SampleRow& row) {
  const auto& [logits_row, temperature, min_p, top_k, top_p, seed, sequence_index, output_position, num_logprobs,
               wants_processed_logprobs, more] = row;
  const auto& [banned_ids, allowed_mask, rules, tokens, prompt_len, mirostat_bound] = row.extras();
  for (const float number : {temperature, min_p, top_p}) digested_.push_back(std::bit_cast<int32_t>(number));
  for (const uint32_t number : {static_cast<uint32_t>(logits_row), static_cast<uint32_t>(top_k), sequence_index,
                                output_position, static_cast<uint32_t>(num_logprobs)}) {
    digested_.push_back(static_cast<int32_t>(number));
  }
  AddWord(seed, &digested_);
  AddWord(banned_ids.size(), &digested_);
  for (const int32_t id : banned_ids) digested_.push_back(permutation_(id));
  // What these do is in the sampled ids; a replay has none of them.
  (void)allowed_mask, (void)rules, (void)tokens, (void)prompt_len, (void)mirostat_bound, (void)wants_processed_logprobs,
      (void)more;
}

// Structured bindings as in trace_fields.h: what is added to a plan does not compile here until it counts.
BlockHash TraceRecorder::Digest(const SchedulePlan& plan) {
  const auto& [step, num_tokens, load, sequences, riders, copies, integrity, samples, extras, scores, masks] = plan;
  (void)extras;  // counted with the samples
  (void)masks;   // filled when the plan is run
  AddWord(static_cast<uint64_t>(step), &digested_);
  digested_.push_back(num_tokens);
  for (const int64_t sum : {load.prefill_tokens, load.prefill_pairs, load.decode_rows, load.decode_kv}) {
    AddWord(static_cast<uint64_t>(sum), &digested_);
  }
  for (const auto& [sequence, start, count, num_drafts, from_sample, first_row, sample, scores_begin, scores_count,
                    riders_begin, riders_count] : sequences) {
    for (const int32_t number : {start, count, num_drafts, from_sample, first_row, sample, scores_begin, scores_count,
                                 riders_begin, riders_count}) {
      digested_.push_back(number);
    }
    for (int32_t i = 0; i < num_drafts; ++i) digested_.push_back(permutation_(sequence->speculation->draft(i)));
    AddBlocks(sequence->table, start / blocks_->block_size());
  }
  for (const auto& [sequence, sample] : riders) {
    const auto [request, index] = Of(*sequence);
    AddWord(static_cast<uint64_t>(request), &digested_);
    for (const int32_t number : {index, sample}) digested_.push_back(number);
  }
  AddWord(copies.size(), &digested_);  // they are in the record
  for (const auto* items : {&integrity.checksums, &integrity.verify}) {
    AddWord(items->size(), &digested_);
    for (const auto& [block, tokens] : *items) {
      digested_.push_back(static_cast<int32_t>(block));
      digested_.push_back(tokens);
    }
  }
  for (const BlockId block : integrity.poison) digested_.push_back(static_cast<int32_t>(block));
  for (const SampleRow& row : samples) AddSampleRow(row);
  for (const auto& [logits_row, target_id, num_logprobs] : scores) {
    for (const int32_t number : {logits_row, permutation_(target_id), num_logprobs}) digested_.push_back(number);
  }
  return ChainHash({}, digested_);
}

}  // namespace quire
