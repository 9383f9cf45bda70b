#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "server/frontend/output_sink.h"
#include "server/http/completion_request.h"
#include "server/http/json_fields.h"

namespace quire {

// The prompt as echo shows it.
struct PromptEcho {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<PositionLogprobs> logprobs;  // of all ids, if asked for
};

// What is known of one choice between two parts of it.
struct ChoiceState {
  int64_t index = 0;
  bool begun = false;
  // Of the text that its log-probabilities have covered so far: code points, and bytes of one that is not whole yet.
  int64_t num_chars = 0;
  std::string open;
};

// Counts for the answer so far.
struct UsageCount {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

// The shapes of OpenAI's answers (protocols.md 2.3): objects of choices, whole or in parts. Immutable.
class CompletionFormat {
 public:
  // The tokenizer outlives this. `created`: seconds since the epoch.
  CompletionFormat(const Tokenizer& tokenizer, const CompletionRequest& request, std::string id, std::string model,
                   int64_t created);

  // One choice, or the next part of it. `echo`: before the first part; null: without. Leaves *state behind the part.
  Json Choice(const SequenceDelta& delta, const PromptEcho* echo, ChoiceState* state) const;

  // What stands around choices. `usage`: null leaves it out; `is_chunk`: of a stream.
  Json Object(Json choices, const UsageCount* usage, bool is_chunk) const;

 private:
  Json CompletionLogprobs(const SequenceDelta& delta, const PromptEcho* echo, ChoiceState* state) const;
  Json ChatLogprobs(const SequenceDelta& delta) const;
  Json ChatToken(int32_t id, float logprob) const;
  // The text of one token; "bytes:\xe6\x97" where it is no text of its own.
  std::string TokenText(int32_t id) const;

  const Tokenizer& tokenizer_;
  const bool is_chat_, stream_, skip_special_tokens_, return_token_ids_;
  const std::string id_, model_;
  const int64_t created_;
};

// One event of a stream.
std::string SseEvent(const Json& object);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";
inline constexpr char kSsePing[] = ": still here\n\n";

// JSON text, whatever bytes are in it.
std::string Dump(const Json& value);

}  // namespace quire
