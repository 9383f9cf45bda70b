#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace quire {

// How long cached tokens are kept against others. 0 .. 100, and higher stays longer. (The priority of a *request* runs
// the other way: lower runs first.)
inline constexpr int32_t kDefaultRetention = 35;
inline constexpr int32_t kMaxRetention = 100;

// What holds for the tokens of one block.
struct RetentionLevel {
  int32_t priority = kDefaultRetention;
  // From the latest use on. Then a priority above the default falls back to it, and among equals the block goes first.
  absl::Duration ttl = absl::InfiniteDuration();
};

// What a request asks of the cache for its tokens, by ranges of positions. A value, without memory of its own.
class Retention {
 public:
  static constexpr int32_t kMaxSpans = 8, kMaxBreakpoints = 4;
  static constexpr int32_t kBreakpointPriority = 80;

  // Tokens begin .. end - 1 (INT32_MAX: to the end of the output). kInvalidArgument naming field, value and limit;
  // kResourceExhausted beyond kMaxSpans.
  absl::Status AddSpan(int32_t begin, int32_t end, int32_t priority, absl::Duration ttl = absl::InfiniteDuration());

  // A mark as commercial APIs know it: everything before `position` is kept with kBreakpointPriority for `ttl` (5 min,
  // 1 h, any other) after each use. At most kMaxBreakpoints.
  absl::Status AddBreakpoint(int32_t position, absl::Duration ttl);

  // Of a block that holds tokens begin .. end - 1: the highest priority of all spans that touch it; among equals the
  // longest ttl.
  RetentionLevel For(int32_t begin, int32_t end) const;

  struct Span {
    int32_t begin = 0, end = 0;
    RetentionLevel level;
  };
  // What was added, breakpoints too, in order.
  absl::Span<const Span> spans() const { return {spans_.data(), static_cast<size_t>(num_spans_)}; }

 private:
  std::array<Span, kMaxSpans> spans_;
  int32_t num_spans_ = 0, num_breakpoints_ = 0;
};

}  // namespace quire
