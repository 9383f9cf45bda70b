#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "block_manager/block_manager.h"
#include "kernels/ops.h"
#include "model/token_constraint.h"
#include "scheduler/speculation.h"

namespace quire {

struct Lane;
struct SequenceGroup;

enum class SequenceState : uint8_t {
  kBlocked,  // holds no blocks and waits for other sequences of its request: for the prompt, or for their beams
  kWaiting,  // holds no blocks, or has kept those it computed on the host
  kRunning,  // holds blocks and stands in plans
  kFinished,
};

// One sequence of a request: what is known of it (tokens), what is computed (num_computed of them have K and V in the
// blocks of `table`), and what will be once the plans in flight have run. Plain state, changed by Scheduler alone, but
// for `constraint` (token_constraints.h); a batch builder reads it.
//
// First stands what every step touches, in as few cache lines as it takes: a thousand of them do not fit into the
// first-level cache. That is also why it repeats what it needs of its group. Not aligned to lines: those of one size
// would compete for the same sets.
struct Sequence {
  // Takes what it repeats from the group, where it stands by then.
  Sequence(SequenceGroup* owner, int32_t sequence_index, BlockTable empty_table);

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  // Tokens that will be known once the plans in flight have run: if these compute all that are known, the last of them
  // samples one more (which is not foreseen of beams, and where the next choice depends on it).
  int32_t num_foreseen() const { return foresees_tokens ? std::max(num_tokens(), num_planned + 1) : num_tokens(); }
  // Of these, what is in no plan yet and needs to be: never the last token that the sequence may have.
  int32_t num_uncomputed() const { return std::min(num_foreseen(), max_len - 1) - num_planned; }
  bool has_output() const { return num_tokens() > prompt_len; }  // tokens beyond the prompt
  // It samples from another's row in a plan in flight, and has no blocks until that is committed.
  bool rides() const { return state == SequenceState::kRunning && table.empty(); }

  SampleRow sample_row;  // as all its samples begin: what its request says

  SequenceGroup* group;
  Lane* const lane;
  const int32_t prompt_len, max_len;
  std::vector<int32_t> tokens;  // prompt, then output; empty until the sequence is first admitted
  int64_t last_step = 0;        // step number of the latest plan that holds it; 0: none
  int32_t num_computed = 0;     // by plans that were committed
  int32_t num_planned = 0;      // by these and by plans in flight: >= num_computed
  int32_t planned_tokens = 0;   // in the plan being made; 0 while none is
  int32_t last_sample = -1;     // what samples its next token there: an index into `samples`; -1: nothing does
  int32_t committed = 0;        // tokens that its lane is charged for in advance
  SequenceState state = SequenceState::kBlocked;
  const bool offline;
  const bool wants_scores;    // of the prompt
  bool foresees_tokens;       // a row may be planned while the token it begins with is in flight
  const bool has_siblings;    // the request has more sequences
  bool wants_extras = false;  // its samples have SampleExtras, as the request says
  BlockTable table;
  // What it may draft in a step, and has drafted behind its tokens: speculation->draft(0) .. No part of num_planned.
  int32_t max_drafts = 0, num_drafts = 0;

  std::unique_ptr<Speculation> speculation;     // null before its first output, and without max_drafts
  std::unique_ptr<TokenConstraint> constraint;  // where it stands behind its output; null without either
  // In-flight sharing, while running: the step number of the latest plan in which others follow it, and the least and
  // the most tokens that one of them wants.
  int64_t followed_step = 0;
  int32_t index;             // 0 .. n - 1
  float mirostat_bound = 0;  // as in SampleExtras
  int32_t least_awaited = 0, most_awaited = 0;
  int64_t following_round = 0;  // while waiting: the latest round in which another computed this sequence's tokens

  PrefixKeys keys;            // of leading full blocks: at least those of the prompt
  int32_t num_overtaken = 0;  // by sequences that started before it though ranked after
  // How much of it the prefix cache held when that was last looked up, while waiting.
  int32_t probed_hit = 0;      // tokens
  int64_t probed_step = 0;     // 0: never
  int32_t probed_on_host = 0;  // blocks of it
};

// Begins to load what a step touches of a sequence. Those of a large batch do not fit into the nearest caches, and
// hardware cannot foresee where the next one lies.
inline void FetchAhead(const Sequence& sequence) {
  const char* begin = reinterpret_cast<const char*>(&sequence);
  for (const int offset : {0, 64, 128}) __builtin_prefetch(begin + offset);
}

}  // namespace quire
