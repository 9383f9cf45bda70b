#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "scheduler/trace/trace_record.h"

namespace quire {

// Each record field by field, for whoever writes, reads or prints it (trace_codec.h). Options and requests are taken
// apart by structured bindings: a field that somebody adds to one of them does not compile here until it has been
// thought of.

// Most of what a trace can speak of; what is longer is not recorded, and what is read beyond it is damaged.
struct TraceLimits {
  int32_t max_blocks = 1 << 24;     // of the pool, times layer groups
  int32_t max_model_len = 1 << 24;  // tokens
};
inline constexpr int64_t kMaxTraceInt = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMinTraceInt = std::numeric_limits<int32_t>::min();
inline constexpr int32_t kMaxTraceTenant = 1 << 20;
inline constexpr size_t kMaxTraceNameBytes = 4096;

template <typename Ar, typename T>
void OptionalField(Ar& ar, const char* field, T& value) {
  bool has = value.has_value();
  ar.Range(field, has, 0, 1);
  int32_t number = value.value_or(0);
  if (has) ar.Range(field, number, kMinTraceInt, kMaxTraceInt);
  if constexpr (Ar::kReads) {
    value.reset();
    if (has) value = number;
  }
}

template <typename Ar, typename T>
void IdList(Ar& ar, const char* field, T& ids, int64_t max) {
  ar.List(field, ids, max, [](Ar& a, auto& id) { a.Range("id", id, 0, kMaxTraceInt); });
}

template <typename Ar, typename T>
void SchedulerOptionsFields(Ar& ar, T& options) {
  auto& [max_num_seqs, max_num_batched_tokens, max_plans_in_flight, enable_prefix_caching, speculation, max_drafts,
         policy, preemption, itl_target, tenant_weights] = options;
  ar.Range("max_num_seqs", max_num_seqs, 1, 65536);
  ar.Range("max_num_batched_tokens", max_num_batched_tokens, 1, 1 << 20);
  ar.Range("max_plans_in_flight", max_plans_in_flight, 1, 2);
  ar.Range("enable_prefix_caching", enable_prefix_caching, 0, 1);
  ar.Range("speculation", speculation, 0, static_cast<int64_t>(SpeculationMode::kNgram));
  ar.Range("max_drafts", max_drafts, 1, kMaxDrafts);
  ar.Range("policy", policy, 0, static_cast<int64_t>(PolicyKind::kFair));
  ar.Range("preemption", preemption, 0, static_cast<int64_t>(PreemptionMode::kSwap));
  ar.Duration("itl_target", itl_target);
  if (itl_target <= absl::ZeroDuration()) ar.Fail("itl_target", "is not above 0");
  ar.List("tenant_weights", tenant_weights, 1 << 20, [](Ar& a, auto& weight) {
    a.Text("tenant", weight.first, kMaxTraceNameBytes);
    a.Real("weight", weight.second, 1e-9, 1e9);
  });
}

template <typename Ar, typename T>
void BlockManagerOptionsFields(Ar& ar, T& options, const TraceLimits& limits) {
  auto& [num_blocks, block_size, enable_prefix_cache, min_partial_tokens, eviction, num_events, num_remembered,
         integrity, group_windows, num_pages, token_order, num_host_blocks, num_host_pages, chain_hash] = options;
  auto& [eviction_policy, attention_equal_tokens, max_pinned_share] = eviction;
  ar.Range("num_blocks", num_blocks, 2, limits.max_blocks);
  ar.Range("block_size", block_size, 1, 65536);
  if (int64_t{num_blocks} * block_size > kMaxTraceInt) ar.Fail("num_blocks", "times block_size is too large");
  ar.Range("enable_prefix_cache", enable_prefix_cache, 0, 1);
  ar.Range("min_partial_tokens", min_partial_tokens, 1, kMaxTraceInt);
  ar.Range("eviction_policy", eviction_policy, 0, static_cast<int64_t>(EvictionPolicy::kLru));
  ar.Range("attention_equal_tokens", attention_equal_tokens, 1, kMaxTraceInt);
  ar.Real("max_pinned_share", max_pinned_share, 0.0, 1.0);
  ar.Range("num_events", num_events, 0, limits.max_blocks);
  ar.Range("num_remembered", num_remembered, 0, limits.max_blocks);
  ar.Range("integrity", integrity, 0, 1);
  ar.List("group_windows", group_windows, 64, [](Ar& a, auto& window) { a.Range("tokens", window, 0, kMaxTraceInt); });
  ar.Range("num_pages", num_pages, group_windows.empty() ? 0 : 2, limits.max_blocks);
  ar.Range("num_host_blocks", num_host_blocks, 0, limits.max_blocks);
  if (!group_windows.empty()) ar.Range("num_host_pages", num_host_pages, 0, limits.max_blocks);
  if (static_cast<int64_t>(group_windows.size()) * (int64_t{num_blocks} + num_host_blocks) > limits.max_blocks) {
    ar.Fail("num_blocks", "times layer groups is too large");
  }
  if ((int64_t{num_blocks} + num_host_blocks) * block_size > kMaxTraceInt) {
    ar.Fail("num_host_blocks", "times block_size is too large");
  }
  (void)token_order, (void)chain_hash;  // of this process
}

template <typename Ar, typename T>
void HeaderFields(Ar& ar, T& header, const TraceLimits& limits) {
  SchedulerOptionsFields(ar, header.scheduler);
  auto& [max_model_len, eos_token_ids] = header.limits;
  ar.Range("max_model_len", max_model_len, 2, limits.max_model_len);
  IdList(ar, "eos_token_ids", eos_token_ids, 1 << 16);
  BlockManagerOptionsFields(ar, header.blocks, limits);
}

template <typename Ar, typename T>
void RetentionFields(Ar& ar, T& retention) {
  auto count = static_cast<int32_t>(retention.spans().size());
  ar.Range("retention_spans", count, 0, Retention::kMaxSpans);
  for (int32_t i = 0; i < count; ++i) {
    Retention::Span span;
    if constexpr (!Ar::kReads) span = retention.spans()[i];
    ar.Range("begin", span.begin, 0, kMaxTraceInt);
    ar.Range("end", span.end, 0, kMaxTraceInt);
    ar.Range("priority", span.level.priority, 0, kMaxRetention);
    ar.Duration("ttl", span.level.ttl);
    if constexpr (Ar::kReads) {
      const absl::Status added = retention.AddSpan(span.begin, span.end, span.level.priority, span.level.ttl);
      if (!added.ok()) ar.Fail("retention", added.message());
    }
  }
}

template <typename Ar, typename T>
void SamplingFields(Ar& ar, T& params) {
  auto& [n, temperature, min_p, top_k, top_p, seed, max_tokens, min_tokens, stop_token_ids, stop_strings,
         include_stop_str_in_output, ignore_eos, skip_special_tokens, logprobs, prompt_logprobs, beam_width,
         length_penalty, early_stopping, processed_logprobs, repetition_detection, rules, needs_output,
         num_speculative_tokens] = params;
  constexpr float kMost = std::numeric_limits<float>::max();
  ar.Range("n", n, 1, 4096);
  ar.Real("temperature", temperature, -kMost, kMost);
  ar.Real("min_p", min_p, -kMost, kMost);
  ar.Range("top_k", top_k, kMinTraceInt, kMaxTraceInt);
  ar.Real("top_p", top_p, -kMost, kMost);
  ar.Word("seed", seed);
  ar.Range("max_tokens", max_tokens, 1, kMaxTraceInt);
  ar.Range("min_tokens", min_tokens, kMinTraceInt, kMaxTraceInt);
  IdList(ar, "stop_token_ids", stop_token_ids, 1 << 16);
  int64_t num_stop_strings = stop_strings.size();
  ar.Range("num_stop_strings", num_stop_strings, 0, 1024);
  if constexpr (Ar::kReads) stop_strings.assign(num_stop_strings, "?");
  ar.Range("ignore_eos", ignore_eos, 0, 1);
  OptionalField(ar, "logprobs", logprobs);
  OptionalField(ar, "prompt_logprobs", prompt_logprobs);
  ar.Range("beam_width", beam_width, 0, 4096);
  ar.Real("length_penalty", length_penalty, -kMost, kMost);
  ar.Range("early_stopping", early_stopping, 0, static_cast<int64_t>(EarlyStopping::kNever));
  auto& [max_pattern_size, min_pattern_size, min_count] = repetition_detection;
  ar.Range("max_pattern_size", max_pattern_size, 0, kMaxTraceInt);
  if (max_pattern_size > 0) {
    ar.Range("min_pattern_size", min_pattern_size, 1, kMaxTraceInt);
    ar.Range("min_count", min_count, 2, kMaxTraceInt);
  }
  ar.Range("needs_output", needs_output, 0, 1);
  OptionalField(ar, "num_speculative_tokens", num_speculative_tokens);
  (void)include_stop_str_in_output, (void)skip_special_tokens;  // the detokenizer's
  (void)processed_logprobs, (void)rules;                        // the sampler's
}

template <typename Ar, typename T>
void RequestFields(Ar& ar, T& request) {
  auto& [handle, prompt_ids, prompt_hashes, root_hash, params, constraint, is_constrained, priority, deadline, arrival,
         fork_of, tenant, reads_cache, writes_cache, retention, tenant_name, offline, ttft_target, tpot_target] =
      request;
  auto step = static_cast<int64_t>(handle - ar.state().handle);
  ar.Signed("handle", step);
  if constexpr (Ar::kReads) handle = ar.state().handle + static_cast<uint64_t>(step);
  ar.state().handle = handle;
  IdList(ar, "prompt_ids", prompt_ids, kMaxTraceInt);
  (void)prompt_hashes;  // follow from the ids
  ar.Hash("root_hash", root_hash);
  SamplingFields(ar, params);
  (void)constraint;  // what it said is in the results
  ar.Range("is_constrained", is_constrained, 0, 1);
  ar.Range("priority", priority, kMinTraceInt, kMaxTraceInt);
  ar.Time("deadline", deadline);
  ar.Time("arrival", arrival);
  auto& [fork_handle, fork_sequence] = fork_of;
  auto fork_step = fork_handle == 0 ? 0 : static_cast<int64_t>(fork_handle - handle);
  ar.Signed("fork_of", fork_step);
  if constexpr (Ar::kReads) fork_handle = fork_step == 0 ? 0 : handle + static_cast<uint64_t>(fork_step);
  ar.Range("fork_sequence", fork_sequence, 0, 65535);
  ar.Range("tenant", tenant, 0, kMaxTraceTenant);
  ar.Range("reads_cache", reads_cache, 0, 1);
  ar.Range("writes_cache", writes_cache, 0, 1);
  RetentionFields(ar, retention);
  ar.Text("tenant_name", tenant_name, kMaxTraceNameBytes);
  ar.Range("offline", offline, 0, 1);
  ar.Duration("ttft_target", ttft_target);
  ar.Duration("tpot_target", tpot_target);
}

template <typename Ar, typename T>
void SequenceFields(Ar& ar, T& sequence) {
  ar.Range("request", sequence.request, 0, std::numeric_limits<int64_t>::max());
  ar.Range("index", sequence.index, 0, 65535);
}

template <typename Ar, typename T>
void DecisionFields(Ar& ar, T& decision) {
  using Kind = TraceDecision::Kind;
  ar.Range("kind", decision.kind, 0, static_cast<int64_t>(Kind::kEnded));
  SequenceFields(ar, decision.sequence);
  if (decision.kind != Kind::kEnded) ar.Range("num_tokens", decision.num_tokens, 0, kMaxTraceInt);
  if (decision.kind == Kind::kAdmitted) {
    ar.Range("partial_tokens", decision.partial_tokens, 0, kMaxTraceInt);
    ar.Range("host_blocks", decision.host_blocks, 0, kMaxTraceInt);
    ar.Range("miss", decision.miss, 0, static_cast<int64_t>(MissReason::kNeverSeen));
    ar.Range("missed_block", decision.missed_block, 0, kMaxTraceInt);
  }
  if (decision.kind == Kind::kPreempted) {
    ar.Range("preempt_reason", decision.preempt_reason, 0, static_cast<int64_t>(PreemptReason::kLostCopy));
    ar.Range("has_other", decision.has_other, 0, 1);
  }
  if constexpr (Ar::kReads) decision.has_other |= decision.kind == Kind::kFollows;
  if (decision.has_other) SequenceFields(ar, decision.other);
  if (decision.kind == Kind::kEnded) {
    ar.Range("finish_reason", decision.finish_reason, 0, static_cast<int64_t>(FinishReason::kRepetition));
    ar.Range("status_code", decision.status_code, 0, 16);
  }
}

template <typename Ar, typename T>
void StepField(Ar& ar, const char* field, T& step) {
  auto delta = static_cast<int64_t>(static_cast<uint64_t>(step) - static_cast<uint64_t>(ar.state().step));
  ar.Signed(field, delta);
  if constexpr (Ar::kReads)
    step = static_cast<int64_t>(static_cast<uint64_t>(ar.state().step) + static_cast<uint64_t>(delta));
  ar.state().step = step;
}

template <typename Ar, typename T>
void PlanFields(Ar& ar, T& plan) {
  bool empty = plan.step == 0;
  ar.Range("plan.empty", empty, 0, 1);
  ar.Range("plan.evictions", plan.evictions, 0, std::numeric_limits<int64_t>::max());
  if (empty) return;
  StepField(ar, "plan.step", plan.step);
  ar.Sequences("plan.sequences", plan.sequences);
  ar.List("plan.copies", plan.copies, kMaxTraceInt, [](Ar& a, auto& copy) {
    a.Range("src", copy.src, 0, kMaxTraceInt);
    a.Range("dst", copy.dst, 0, kMaxTraceInt);
  });
  ar.Hash("plan.digest", plan.digest);
}

template <typename Ar, typename T>
void ResultFields(Ar& ar, T& record) {
  StepField(ar, "step", record.step);
  ar.Real("step_seconds", record.step_seconds, 0.0, 1e9);
  bool has_host_copies = record.host_copy_seconds != 0;
  ar.Range("has_host_copies", has_host_copies, 0, 1);
  if (has_host_copies) ar.Real("host_copy_seconds", record.host_copy_seconds, 0.0, 1e9);
  ar.List("sampled", record.sampled, kMaxTraceInt, [](Ar& a, auto& id) { a.Range("id", id, -1, kMaxTraceInt); });
  ar.Range("num_scores", record.num_scores, 0, kMaxTraceInt);
  ar.List("bad_scores", record.bad_scores, record.num_scores,
          [&](Ar& a, auto& i) { a.Range("score", i, 0, std::max(0, record.num_scores - 1)); });
  ar.List("beam_logprob_counts", record.beam_logprob_counts, static_cast<int64_t>(record.sampled.size()),
          [](Ar& a, auto& count) { a.Range("count", count, 1, kMaxTraceInt); });
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  ar.List("beam_logprobs", record.beam_logprobs, kMaxTraceInt, [](Ar& a, auto& logprob) {
    a.Range("id", logprob.token_id, 0, kMaxTraceInt);
    a.Real("logprob", logprob.logprob, -kInfinite, kInfinite);
  });
  ar.List("constrained", record.constrained, static_cast<int64_t>(record.sampled.size()), [](Ar& a, auto& c) {
    a.Range("sample", c.sample, 0, kMaxTraceInt);
    a.Range("forced_count", c.forced_count, 0, kMaxTraceInt);
    a.Range("ends", c.ends, 0, 1);
    a.Range("status_code", c.status_code, 0, 16);
  });
  if constexpr (Ar::kReads) record.forced.clear();
  if (!record.constrained.empty()) IdList(ar, "forced", record.forced, kMaxTraceInt);
}

template <typename Ar, typename T>
void RecordFields(Ar& ar, T& record) {
  ar.Range("call", record.call, static_cast<int64_t>(TraceCall::kAdd), static_cast<int64_t>(TraceCall::kEnd));
  switch (record.call) {
    case TraceCall::kAdd:
      RequestFields(ar, record.request);
      break;
    case TraceCall::kAbort:
    case TraceCall::kAbortSequence:
      ar.Word("handle", record.handle);
      if (record.call == TraceCall::kAbortSequence) ar.Range("sequence_index", record.sequence_index, 0, kMaxTraceInt);
      ar.Now("now", record.now);
      break;
    case TraceCall::kSetHeld:
      ar.Word("handle", record.handle);
      ar.Range("held", record.held, 0, 1);
      break;
    case TraceCall::kDropExpired:
    case TraceCall::kAdvanceTime:
      ar.Now("now", record.now);
      break;
    case TraceCall::kSchedule:
      ar.Now("now", record.now);
      PlanFields(ar, record.plan);
      break;
    case TraceCall::kCommit:
      ar.Now("now", record.now);
      ResultFields(ar, record);
      break;
    case TraceCall::kFailStep:
      ar.Now("now", record.now);
      StepField(ar, "step", record.step);
      ar.Range("status_code", record.status_code, 1, 16);
      break;
    case TraceCall::kSetTenantQuota:
      ar.Range("tenant", record.tenant, 1, kMaxTraceTenant);
      ar.Range("max_blocks", record.max_blocks, -1, kMaxTraceInt);
      break;
    case TraceCall::kDropPrefix:
      ar.Hash("root", record.root);
      IdList(ar, "tokens", record.tokens, kMaxTraceInt);
      break;
    case TraceCall::kDropTenant:
      ar.Range("tenant", record.tenant, kMinTraceInt, kMaxTraceInt);
      break;
    case TraceCall::kDropAll:
      break;
    case TraceCall::kEnd:
      ar.Range("end", record.end, 0, static_cast<int64_t>(TraceEnd::kUnwritten));
      ar.Range("lost_records", record.lost_records, 0, std::numeric_limits<int64_t>::max());
      break;
  }
  const bool drops = record.call == TraceCall::kDropPrefix || record.call == TraceCall::kDropTenant ||
                     record.call == TraceCall::kDropAll;
  if (drops) ar.Range("dropped_blocks", record.dropped_blocks, 0, kMaxTraceInt);
  ar.List("decisions", record.decisions, kMaxTraceInt, [](Ar& a, auto& decision) { DecisionFields(a, decision); });
}

}  // namespace quire
