#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "model/constraint/reply_form.h"

namespace quire {

struct ChatPrompt;

// How long cached tokens are kept against others (block_manager/retention.h): a priority of 0 .. 100, higher stays
// longer, unlike that of a request; and for how many seconds after each use. Unset: the default, for ever.
struct KeepRequest {
  std::optional<int64_t> priority;
  std::optional<double> ttl_seconds;
};

// What a client asks of the prefix cache.
struct CacheRequest {
  struct Range {
    int64_t begin = 0;           // first token of the prompt that is meant
    std::optional<int64_t> end;  // behind the last; unset: the end of the prompt
    KeepRequest keep;
  };
  struct Breakpoint {
    int64_t position = 0;  // everything before it is kept
    std::optional<double> ttl_seconds;
  };

  std::string salt;
  bool no_read = false, no_write = false;
  std::vector<Range> retention;
  std::optional<KeepRequest> decode_retention;  // of what is generated
  std::vector<Breakpoint> breakpoints;
};

// What few requests ask of the sampler. Unset: off, or the model's default.
struct RulesRequest {
  std::optional<float> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int64_t> repeat_last_n;
  std::vector<std::pair<int64_t, float>> logit_bias;
  std::vector<int64_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::optional<int64_t> no_repeat_ngram_size;
  std::optional<float> dry_multiplier, dry_base;
  std::optional<int64_t> dry_allowed_length, dry_last_n;
  std::vector<std::string> dry_sequence_breakers;  // empty: the usual ones
  std::optional<float> top_n_sigma;
  std::optional<float> dynatemp_range, dynatemp_exponent;
  std::optional<float> typical_p;
  std::optional<float> xtc_probability, xtc_threshold;
  bool mirostat = false;
  std::optional<float> mirostat_tau, mirostat_eta;
};

struct RepetitionRequest {
  int64_t max_pattern_size = 0;
  std::optional<int64_t> min_pattern_size;
  int64_t min_count = 0;
};

// Structured output: what the text may be (model/constraint). Compiled on a tokenizer thread.
struct StructuredOutput {
  enum class Kind : uint8_t { kFree, kJsonSchema, kJsonObject, kRegex, kGrammar, kChoices, kCalls };
  Kind kind = Kind::kFree;
  std::string source;                // schema as JSON text, expression, or grammar
  std::vector<std::string> choices;  // kChoices
  bool compact_json = false;         // no white space between the tokens of JSON
  // Not fields of a message: what a conversation makes of its tools and of its model (tool_choice.h).
  constraint::CallSyntax calls;  // kCalls
  constraint::Reasoning reasoning = constraint::Reasoning::kNone;
  std::string field;  // as the client knows it, for errors
};

// What Fork puts before the prompt of a request, which may then be missing.
struct ForkPoint {
  uint64_t handle = 0;  // of the forked request
  int32_t sequence_index = 0;
  std::vector<int32_t> tokens;
};

// What a client asked for, before anything of it is believed: the fields, defaults and meanings of GenerateRequest in
// proto/quire/v1/generation.proto. Integers are wide enough for whatever a client may write, so that the validator and
// no conversion decides.
struct GenerateRequest {
  std::string request_id;  // empty: the front end makes one
  std::string model;       // empty: the served one
  // Text, token ids or a conversation (chat_prompt.h; shared by requests that differ elsewhere).
  std::variant<std::monostate, std::string, std::vector<int64_t>, std::shared_ptr<const ChatPrompt>> prompt;
  bool add_special_tokens = true;
  std::optional<int64_t> truncate_prompt_tokens;  // -1: what leaves room for max_tokens
  int64_t truncation_side = 0;                    // numbers of TruncationSide

  std::optional<float> temperature;
  std::optional<float> min_p;
  std::optional<int64_t> top_k;
  std::optional<float> top_p;
  std::optional<int64_t> seed;
  std::optional<int64_t> n;
  std::optional<int64_t> best_of;     // sequences that run; the n most probable ones are returned
  std::optional<int64_t> beam_width;  // unset: no beam search
  std::optional<float> length_penalty;
  int64_t early_stopping = 0;  // numbers of BeamSearch.EarlyStopping
  RulesRequest rules;

  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  std::optional<RepetitionRequest> repetition_detection;

  std::optional<int64_t> logprobs;
  std::optional<int64_t> prompt_logprobs;
  bool want_text = true;
  bool want_token_ids = true;
  bool skip_special_tokens = true;
  int64_t logprobs_mode = 0;  // numbers of Output.LogprobsMode
  bool echo = false;          // PromptInfo says what the prompt was
  StructuredOutput structured_output;

  CacheRequest cache;
  int64_t priority = 0;  // lower runs first
  std::optional<int64_t> num_speculative_tokens;
  absl::Time deadline = absl::InfiniteFuture();
  bool offline = false;
  std::optional<int64_t> ttft_target_ms, tpot_target_ms;
  std::optional<ForkPoint> fork;  // not a field of the message
  bool streamed = false;          // output is wanted as it comes; not a field of the message
  std::string tenant;  // whose share it counts against and whose cached prefixes it sees; not a field of the message
};

// The fields of ForkRequest.
struct ForkRequest {
  std::string request_id;
  int64_t sequence = 0;
  std::optional<int64_t> at_token;
  GenerateRequest request;
};

}  // namespace quire
