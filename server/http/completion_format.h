#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "server/frontend/output_sink.h"
#include "server/http/completion_request.h"
#include "server/http/json_fields.h"

namespace quire {

// What is known of a prompt: the seed of its choices, text and ids with echo, log-probabilities of all ids if asked
// for.
struct PromptEcho {
  int64_t seed = 0;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<PositionLogprobs> logprobs;

  // The next part.
  void Append(PromptInfo part);
};

// What is known of one choice between two parts of it.
struct ChoiceState {
  int64_t index = 0;
  bool begun = false;
  int64_t num_calls = 0;  // of tools
  // Of the text that its log-probabilities have covered so far: code points, and bytes of one that is not whole yet.
  int64_t num_chars = 0;
  std::string open = {};
};

// Counts for the answer so far.
struct UsageCount {
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;
};

// The shapes of OpenAI's answers (protocols.md 2.3): objects of choices, whole or in parts. Immutable.
class CompletionFormat {
 public:
  // The tokenizer outlives this. `created`: seconds since the epoch.
  CompletionFormat(const Tokenizer& tokenizer, const CompletionRequest& request, std::string id, std::string model,
                   int64_t created);

  // One choice, or the next part of it. `prompt`: with the first part; of it comes what the client asked for. Leaves
  // *state behind the part.
  Json Choice(const SequenceDelta& delta, const PromptEcho* prompt, ChoiceState* state) const;

  // What stands around choices. `usage`: null leaves it out; `is_chunk`: of a stream. `prompt`: of the chat whose first
  // part is among the choices, else null.
  Json Object(Json choices, const UsageCount* usage, bool is_chunk, const PromptEcho* prompt = nullptr) const;

 private:
  Json CompletionLogprobs(const SequenceDelta& delta, const PromptEcho* echo, ChoiceState* state) const;
  Json ChatMessage(const SequenceDelta& delta, ChoiceState* state) const;
  Json ChatLogprobs(const SequenceDelta& delta) const;
  // vLLM's: one object a token, keyed by id; null for the first.
  Json PromptLogprobs(const PromptEcho& prompt) const;
  Json ChatToken(int32_t id, float logprob) const;
  // The text of one token; "bytes:\xe6\x97" where it is no text of its own. Its id where clients ask for that.
  std::string TokenText(int32_t id) const;

  const Tokenizer& tokenizer_;
  const bool is_chat_, stream_, skip_special_tokens_, return_token_ids_, tokens_as_ids_, echo_, has_logprobs_,
      has_prompt_logprobs_;
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
