#include "block_manager/retention.h"

#include "absl/strings/str_format.h"

namespace quire {

absl::Status Retention::AddSpan(int32_t begin, int32_t end, int32_t priority, absl::Duration ttl) {
  if (begin < 0 || end <= begin) {
    return absl::InvalidArgumentError(
        absl::StrFormat("retention of tokens %d to %d: needed is 0 <= begin < end", begin, end));
  }
  if (priority < 0 || priority > kMaxRetention) {
    return absl::InvalidArgumentError(
        absl::StrFormat("retention priority is %d, allowed are 0 to %d", priority, kMaxRetention));
  }
  if (ttl <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("retention ttl is %s, it must be above 0", absl::FormatDuration(ttl)));
  }
  if (num_spans_ == kMaxSpans) {
    return absl::ResourceExhaustedError(absl::StrFormat("more than %d retention spans", kMaxSpans));
  }
  spans_[num_spans_++] = {begin, end, {priority, ttl}};
  return absl::OkStatus();
}

absl::Status Retention::AddBreakpoint(int32_t position, absl::Duration ttl) {
  if (num_breakpoints_ == kMaxBreakpoints) {
    return absl::ResourceExhaustedError(absl::StrFormat("more than %d cache breakpoints", kMaxBreakpoints));
  }
  const absl::Status status = AddSpan(0, position, kBreakpointPriority, ttl);
  num_breakpoints_ += status.ok();
  return status;
}

RetentionLevel Retention::For(int32_t begin, int32_t end) const {
  RetentionLevel level;
  bool found = false;
  for (int32_t i = 0; i < num_spans_; ++i) {
    const Span& span = spans_[i];
    if (span.begin >= end || span.end <= begin) continue;
    const bool stronger =
        span.level.priority > level.priority || (span.level.priority == level.priority && span.level.ttl > level.ttl);
    if (!found || stronger) level = span.level;
    found = true;
  }
  return level;
}

}  // namespace quire
