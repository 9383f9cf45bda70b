#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "server/frontend/output_sink.h"

namespace quire {

// The answer to one request of quire_offline, gathered from what the front end says bit by bit.
//
//   {"id", "output_ids", "text", "finish_reason", "stop_reason", "logprobs", "prompt_logprobs", "usage", "timings"}
//
// finish_reason: "stop", "length", "abort", or "tool_calls". Of a chat there are "reasoning" and "tool_calls" ([{"id",
// "name", "arguments"}]) behind "text" where the reply has such. stop_reason: the stop string or the stop id; null for
// eos and else. logprobs: for each output token [[id, value], ...], the best ones asked for, best first, then the
// chosen token if it is not among them; null if not asked for. prompt_logprobs: the same for each prompt token, null
// for the first. A value of null is minus infinity. usage: {prompt_tokens, cached_tokens, completion_tokens, and
// cache_miss where there was one: {reason, block, evicted_seconds_ago}; drafted_tokens and accepted_tokens where there
// were drafts}. timings: {queue, prefill, decode, total} in
// seconds, {preemptions, first_step, last_step}. With n > 1 the answer speaks of sequence 0 and has "outputs" beside:
// for each sequence {"index", "output_ids", "text", "finish_reason", "stop_reason", "logprobs"}. With beam search each
// sequence has "score", too.
class OfflineResult {
 public:
  void Add(OutputDelta delta);
  // The JSON line, without its end. REQUIRES: the last delta was added.
  std::string ToJson(const nlohmann::json& id) const;

 private:
  struct Sequence {
    std::vector<int32_t> output_ids;
    std::string text, reasoning;
    std::vector<ToolUse> tool_calls;
    std::vector<PositionLogprobs> logprobs;
    Finish finish;
  };

  static void AppendSequence(const Sequence& sequence, std::string* json);

  std::map<int32_t, Sequence> sequences_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  Usage usage_;
  Timings timings_;
};

// {"id", "error": {"code", "message"}}; code is the canonical name, "INVALID_ARGUMENT".
std::string ErrorJson(const nlohmann::json& id, const absl::Status& status);

}  // namespace quire
