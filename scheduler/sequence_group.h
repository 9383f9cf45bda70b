#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/beam_group.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"

namespace quire {

struct Lane;

// One request: 1 .. n sequences that share a prompt. Plain state, changed by Scheduler alone. As in Sequence, what
// every step touches comes first.
struct SequenceGroup {
  explicit SequenceGroup(EngineRequest taken)
      : num_prompt_tokens(static_cast<int32_t>(taken.prompt_ids.size())),
        offline(taken.offline),
        request(std::move(taken)) {}

  int32_t prompt_len() const { return num_prompt_tokens; }

  const int32_t num_prompt_tokens;
  int32_t max_len = 0;              // prompt + output tokens that a sequence may have
  int32_t next_score_position = 0;  // first prompt position whose score is still to be delivered; none: prompt_len
  int32_t num_unfinished = 0;       // sequences
  int32_t num_running = 0;          // sequences
  const bool offline;               // as in the request
  bool admitted = false;            // some sequence was, once
  bool aborted = false, failed = false;
  bool held = false;                 // in no plan for now
  std::unique_ptr<BeamGroup> beams;  // null without beam search
  Lane* lane = nullptr;
  // Step numbers of the first and the latest plan that hold some of its sequences; 0: none does. If it has only one,
  // last_step is as of that one's latest event, so that making a plan need not come here.
  int64_t first_step = 0, last_step = 0;

  // For SequenceOutput.
  int32_t num_preemptions = 0;
  int32_t cached_tokens = 0;
  int32_t drafted_tokens = 0, accepted_tokens = 0;
  absl::Time scheduled_time = absl::InfinitePast();
  absl::Time first_token_time = absl::InfinitePast();
  PrefixMatch prefix_match;  // of the first admission: also why no more was found

  // The order within its lane and class (online before offline): a lower rank goes first, then the earlier arrival. All
  // three are given by the policy once and never change, so that nothing waits for ever.
  int64_t rank = 0;
  uint64_t arrival_number = 0;

  // Whether sequences may plan a row while the token it begins with is in flight, as long as they draft nothing.
  bool foresees_tokens() const { return beams == nullptr && !request.params.needs_output && !request.is_constrained; }

  std::vector<Sequence> sequences;  // n of them, or as many as beams; never moves
  std::vector<int32_t> ending_ids;  // eos ids unless ignored, then stop ids; banned while below min_tokens
  EngineRequest request;
};

inline Sequence::Sequence(SequenceGroup* owner, int32_t sequence_index, BlockTable empty_table)
    : group(owner),
      lane(owner->lane),
      prompt_len(owner->prompt_len()),
      max_len(owner->max_len),
      offline(owner->offline),
      wants_scores(owner->request.params.prompt_logprobs.has_value()),
      foresees_tokens(owner->foresees_tokens()),
      has_siblings(std::max(owner->request.params.n, owner->request.params.beam_width) > 1),
      table(std::move(empty_table)),
      index(sequence_index) {}

}  // namespace quire
