#include "server/grpc/cache_convert.h"

#include <string>
#include <utility>

#include "absl/time/time.h"

namespace quire {
namespace {

v1::CacheMiss::Reason ReasonOf(MissReason reason) {
  switch (reason) {
    case MissReason::kNone:
      break;
    case MissReason::kCacheOff:
      return v1::CacheMiss::REASON_CACHE_OFF;
    case MissReason::kBypassed:
      return v1::CacheMiss::REASON_BYPASSED;
    case MissReason::kUnderMinimum:
      return v1::CacheMiss::REASON_UNDER_MINIMUM;
    case MissReason::kCopyNotWorth:
      return v1::CacheMiss::REASON_COPY_NOT_WORTH;
    case MissReason::kEvicted:
      return v1::CacheMiss::REASON_EVICTED;
    case MissReason::kOtherRoot:
      return v1::CacheMiss::REASON_OTHER_ROOT;
    case MissReason::kNeverSeen:
      return v1::CacheMiss::REASON_NEVER_SEEN;
    case MissReason::kSlidOut:
      return v1::CacheMiss::REASON_SLID_OUT;
  }
  return v1::CacheMiss::REASON_UNSPECIFIED;
}

v1::ScheduleTraceResponse::State StateOf(ScheduleTraceStatus::State state) {
  switch (state) {
    case ScheduleTraceStatus::State::kNone:
      return v1::ScheduleTraceResponse::STATE_NONE;
    case ScheduleTraceStatus::State::kPending:
      return v1::ScheduleTraceResponse::STATE_PENDING;
    case ScheduleTraceStatus::State::kRecording:
      return v1::ScheduleTraceResponse::STATE_RECORDING;
    case ScheduleTraceStatus::State::kEnded:
      return v1::ScheduleTraceResponse::STATE_ENDED;
    case ScheduleTraceStatus::State::kStopping:
      return v1::ScheduleTraceResponse::STATE_STOPPING;
    case ScheduleTraceStatus::State::kStopped:
      return v1::ScheduleTraceResponse::STATE_STOPPED;
  }
  return v1::ScheduleTraceResponse::STATE_UNSPECIFIED;
}

void ToProto(const KvEvent& event, v1::KvEvent* out) {
  out->set_tier(event.tier == KvEvent::Tier::kHost ? v1::KvEvent::TIER_HOST : v1::KvEvent::TIER_DEVICE);
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      out->set_kind(v1::KvEvent::KIND_STORED);
      out->set_parent(BytesOf(event.parent));
      out->mutable_token_ids()->Add(event.tokens.begin(), event.tokens.end());
      break;
    case KvEvent::Kind::kRemoved:
      out->set_kind(v1::KvEvent::KIND_REMOVED);
      break;
    case KvEvent::Kind::kCleared:
      out->set_kind(v1::KvEvent::KIND_CLEARED);
      return;  // of no block
  }
  out->set_key(BytesOf(event.key));
}

}  // namespace

std::string BytesOf(const BlockHash& hash) {
  std::string bytes;
  for (uint64_t half : {hash.high, hash.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(half >> shift));
  }
  return bytes;
}

KeepRequest FromProto(const v1::Retention& retention) {
  KeepRequest keep;
  if (retention.has_priority()) keep.priority = retention.priority();
  if (retention.has_ttl_seconds()) keep.ttl_seconds = retention.ttl_seconds();
  return keep;
}

void FromProto(const v1::Cache& cache, CacheRequest* out) {
  out->salt = cache.salt();
  out->no_read = cache.no_read();
  out->no_write = cache.no_write();
  for (const v1::RetentionRange& range : cache.retention()) {
    CacheRequest::Range& to = out->retention.emplace_back();
    to.begin = range.begin();
    if (range.has_end()) to.end = range.end();
    to.keep = FromProto(range.keep());
  }
  if (cache.has_decode_retention()) out->decode_retention = FromProto(cache.decode_retention());
  for (const v1::CacheBreakpoint& mark : cache.breakpoints()) {
    CacheRequest::Breakpoint& to = out->breakpoints.emplace_back();
    to.position = mark.position();
    if (mark.has_ttl_seconds()) to.ttl_seconds = mark.ttl_seconds();
  }
}

GenerateRequest FromProto(v1::Prefix& prefix) {
  GenerateRequest out;
  if (prefix.has_text()) {
    out.prompt = std::move(*prefix.mutable_text());
  } else if (prefix.has_token_ids()) {
    out.prompt = std::vector<int64_t>(prefix.token_ids().ids().begin(), prefix.token_ids().ids().end());
  }
  if (prefix.has_add_special_tokens()) out.add_special_tokens = prefix.add_special_tokens();
  out.cache.salt = prefix.salt();
  out.tenant = prefix.tenant();
  return out;
}

void ToProto(const PrefixPage& page, v1::ListPrefixesResponse* response) {
  response->set_total(page.total);
  response->set_next_page_token(page.next_page_token);
  for (const CachedPrefix& prefix : page.prefixes) {
    v1::CachedPrefix* out = response->add_prefixes();
    out->set_root(BytesOf(prefix.root));
    out->set_key(BytesOf(prefix.key));
    out->set_tokens(prefix.num_tokens);
    out->set_blocks(prefix.num_blocks);
    out->set_bytes(prefix.bytes);
    out->set_hits(prefix.num_hits);
    out->set_head_hits(prefix.head_hits);
    out->set_priority(prefix.priority);
    out->set_tenant(prefix.tenant);
    out->set_in_use(prefix.in_use);
    out->set_unused_seconds(absl::ToDoubleSeconds(prefix.unused_for));
    if (prefix.expires_in) out->set_expires_in_seconds(absl::ToDoubleSeconds(*prefix.expires_in));
  }
}

void ToProto(const ScheduleTraceStatus& trace, v1::ScheduleTraceResponse* response) {
  response->set_recording(trace.state == ScheduleTraceStatus::State::kRecording);
  response->set_records(trace.records);
  response->set_bytes(trace.bytes);
  response->set_lost_records(trace.lost_records);
  response->set_state(StateOf(trace.state));
  response->set_file(trace.file);
  response->set_problem(trace.problem);
}

void ToProto(const EventBatch& batch, v1::KvEvents* message) {
  message->set_first(batch.first);
  message->set_lost(batch.lost);
  for (const KvEvent& event : batch.events) ToProto(event, message->add_events());
}

void ToProto(const CacheMiss& miss, v1::CacheMiss* out) {
  out->set_reason(ReasonOf(miss.reason));
  out->set_block(miss.block);
  if (miss.reason == MissReason::kEvicted) out->set_evicted_seconds_ago(absl::ToDoubleSeconds(miss.evicted_ago));
}

}  // namespace quire
