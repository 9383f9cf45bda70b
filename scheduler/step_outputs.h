#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "model/step_result.h"

namespace quire {

enum class FinishReason : uint8_t { kNone, kStop, kLength, kAborted, kError, kRepetition };

// One event of one sequence in one step. Values only: nothing in it points into the engine. With beam search the events
// of all tokens of the best n hypotheses come in the step that ends the search; sequence 0 is the best.
struct SequenceOutput {
  uint64_t handle = 0;
  int32_t sequence_index = 0;                        // 0 .. n - 1
  int32_t token_id = -1;                             // the new token; -1: none (aborted or failed)
  FinishReason finish_reason = FinishReason::kNone;  // not kNone: the last event of this sequence
  // With kStop: the eos or stop id, which is also token_id; -1: structured output that is complete without one.
  int32_t stop_token_id = -1;
  bool stopped_by_eos = false;            // with kStop: it was one of the model's eos ids
  bool request_finished = false;          // the last event of the last sequence of this request
  absl::Status error = absl::OkStatus();  // with kError: why; kDeadlineExceeded, kFailedPrecondition, kInternal, ...
  int32_t logprobs_begin = 0, logprobs_count = 0;  // into StepOutputs::logprobs, as in SampledToken
  int32_t rank = 0;
  double score = 0;  // with beam search, on the last event of a hypothesis: what it was chosen by
  // Of the request so far; final with request_finished.
  int32_t cached_tokens = 0;                        // prompt tokens not computed thanks to the prefix cache
  int32_t drafted_tokens = 0, accepted_tokens = 0;  // speculation: tokens tried, and those of them that were right
  // Where and why the search for more of them ended, at the first admission.
  MissReason miss = MissReason::kNone;
  int32_t missed_block = 0;                      // the first that was not found; means something if miss is not kNone
  absl::Time evicted_at = absl::InfinitePast();  // with kEvicted
  int32_t num_preemptions = 0;
  int64_t first_step = 0,
          last_step = 0;  // step counter values of the first and the latest plan that held this request; 0: none
  absl::Time scheduled_time = absl::InfinitePast();  // first time in a plan
  absl::Time first_token_time = absl::InfinitePast();
  absl::Time time = absl::InfinitePast();  // of this event
};

// Log-probability of one prompt position, in order of position, before the first token of sequence 0.
struct PromptScoreOutput {
  uint64_t handle = 0;
  int32_t position = 0;  // >= 1: position 0 has none
  int32_t logprobs_begin = 0, logprobs_count = 0;
  int32_t rank = 0;
};

// What one step (or one drained message) gave. Slots are reused: the vectors keep their capacity.
struct StepOutputs {
  std::vector<PromptScoreOutput> prompt_scores;  // to be read before `sequences`
  std::vector<SequenceOutput> sequences;
  std::vector<TokenLogprob> logprobs;
};

}  // namespace quire
