#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace quire {

// How waiting requests are ordered; scheduler/README.md has the formulas.
enum class PolicyKind : uint8_t { kFcfs, kPriority, kDeadline, kFair };

// What becomes of the blocks of a preempted sequence where there is a host tier; without one they are recomputed.
enum class PreemptionMode : uint8_t {
  kAuto,       // by measured cost
  kRecompute,  // computed again, unless the prefix cache still has them
  kSwap,       // kept on the host once their room is needed
};

// Where drafts of the next tokens come from.
enum class SpeculationMode : uint8_t {
  kOff,
  kNgram,  // look-up in the sequence's own text
};

// Most drafts that a step may check for a sequence.
inline constexpr int32_t kMaxDrafts = 64;

struct SchedulerOptions {
  int32_t max_num_seqs = 256;             // sequences in one step, [1, 65536]
  int32_t max_num_batched_tokens = 2048;  // tokens in one step, [1, 1048576]; may be below max_num_seqs
  // 2: a plan may be made while the one before it is in flight, with rows whose token that one samples.
  int32_t max_plans_in_flight = 1;  // 1 or 2
  bool enable_prefix_caching = true;
  SpeculationMode speculation = SpeculationMode::kOff;
  int32_t max_drafts = 8;  // with speculation: drafted tokens that a step may check for a sequence, [1, kMaxDrafts]
  PolicyKind policy = PolicyKind::kPriority;
  PreemptionMode preemption = PreemptionMode::kAuto;
  // What a step may take: prefill chunks are cut so that about 99 of 100 steps stay below. > 0; infinite: no bound.
  absl::Duration itl_target = absl::InfiniteDuration();
  // Policy `fair`: shares of tenants, each > 0; all others have 1.
  std::vector<std::pair<std::string, double>> tenant_weights = {};
};

}  // namespace quire
