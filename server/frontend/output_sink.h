#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/engine.h"

namespace quire {

// Log-probabilities at one position. An empty one (rank 0) stands for the first prompt token, which has none.
struct PositionLogprobs {
  float logprob = 0;              // of the chosen (or the prompt's own) token
  int32_t rank = 0;               // its 1-based rank
  std::vector<TokenLogprob> top;  // best first
  int32_t token_id = -1;          // the chosen (or the prompt's own) token
};

struct PromptInfo {
  int32_t prompt_tokens = 0;
  int64_t seed = 0;
  std::vector<PositionLogprobs> logprobs;  // the next positions of the prompt, in order
  // The next part of the prompt, if its echo is asked for: valid UTF-8, and ids.
  std::string text = {};
  std::vector<int32_t> token_ids = {};
};

// Why a sequence ended.
struct Finish {
  enum class Stop { kNone, kEos, kStopToken, kStopString };
  FinishReason reason = FinishReason::kNone;  // kStop, kLength or kAborted
  Stop stop = Stop::kNone;                    // with kStop
  int32_t token_id = -1;                      // with kEos and kStopToken
  std::string stop_string;                    // with kStopString
  std::optional<double> score = {};           // with beam search, or of the best of several
  bool called_tools = false;                  // of a chat: the reply holds a call
};

// A call of a tool that a reply holds. Arguments: a JSON object, as text.
struct ToolUse {
  std::string id, name, arguments;
};

// What is new of one sequence.
struct SequenceDelta {
  int32_t index = 0;
  std::string text;                        // valid UTF-8, never ends inside a character
  std::string reasoning;                   // of a chat: what came before the text, likewise
  std::vector<ToolUse> tool_calls;         // of a chat
  std::vector<int32_t> token_ids;          // empty if not asked for
  std::vector<PositionLogprobs> logprobs;  // one per new token, if asked for
  std::optional<Finish> finish;            // on the last delta of the sequence
};

// Why no more of the prompt was found in the prefix cache.
struct CacheMiss {
  MissReason reason = MissReason::kNone;
  int32_t block = 0;           // the first that was not found, from 0
  absl::Duration evicted_ago;  // with kEvicted: before the request was answered
};

// "never_seen" and so on; empty for kNone.
std::string_view MissReasonName(MissReason reason);

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;                    // over all sequences
  int32_t reasoning_tokens = 0;                     // of those
  int32_t drafted_tokens = 0, accepted_tokens = 0;  // of speculation
  CacheMiss cache_miss = {};                        // of a request that was admitted
};

// Durations of a request by phase; zero for phases it never reached.
struct Timings {
  absl::Duration queue, prefill, decode, total;
  int32_t preemptions = 0;
  int64_t first_step = 0, last_step = 0;
};

// What is new of one request. The first one carries `prompt` (further ones where its log-probabilities come in parts);
// the last one carries `usage` and `timings`.
struct OutputDelta {
  std::optional<PromptInfo> prompt;
  std::vector<SequenceDelta> sequences;
  std::optional<Usage> usage;
  Timings timings;  // with usage

  bool is_last() const { return usage.has_value(); }
};

// Where a request's output goes. Called by one thread at a time, never by the engine's; must not block. The request
// ends with exactly one call: a Write whose delta is_last(), or a Fail.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // The id of the request, made up if the client gave none, and what Frontend::Cancel and SetHeld know it by. Before
  // anything else, on the caller's thread.
  virtual void Accepted(const std::string& /*request_id*/, uint64_t /*handle*/) {}
  virtual void Write(OutputDelta delta) = 0;
  virtual void Fail(const absl::Status& status) = 0;
  // True once nobody reads any more: the request's id may then be used again. Any thread.
  virtual bool IsGone() const { return false; }
};

}  // namespace quire
