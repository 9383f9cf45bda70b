#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "model/chat/tool_parser.h"
#include "model/sampling_params.h"
#include "scheduler/request.h"
#include "server/frontend/generate_request.h"
#include "server/frontend/sampling_rules_check.h"

namespace quire {

// What bounds a request; constant for the life of the process.
struct RequestLimits {
  std::vector<std::string> served_model_names;  // at least one
  int32_t vocab_size = 0;                       // of the model, not of the tokenizer
  int32_t max_model_len = 0;                    // prompt + output tokens
  // Bytes of a text prompt: longer ones are refused before they are tokenized.
  int64_t max_text_bytes = std::numeric_limits<int64_t>::max();
  int32_t max_logprobs = 20;  // -1: up to the whole vocabulary
  // The model's sampling defaults, already checked to be in range; unset: the built-in ones.
  bool processed_logprobs = false;  // where a request does not say
  std::optional<float> default_temperature, default_min_p, default_top_p, default_repetition_penalty;
  std::optional<int32_t> default_top_k;
};

// A request whose every field is in range; only the Validator makes one. What depends on the length of a text prompt
// is checked by Validator::FitPrompt once that is known.
class ValidatedRequest {
 public:
  std::string request_id;  // may still be empty
  // Text (valid UTF-8), ids (in the vocabulary) or a conversation, not looked at yet.
  std::variant<std::string, std::vector<int32_t>, std::shared_ptr<const ChatPrompt>> prompt;
  bool add_special_tokens = true;
  std::vector<int32_t> before_text;  // ids that a text goes behind
  ForkOrigin fork_of;
  int32_t max_prompt_tokens = -1;  // that are kept of a longer prompt; -1: it is not cut
  bool keeps_first = false;        // of these: the first ones instead of the last ones
  // max_tokens is meaningful only with has_max_tokens, seed only with has_seed; the rules are still to be resolved
  SamplingParams params;
  CheckedRules rules;
  bool echo = false;
  bool has_max_tokens = false;
  bool has_seed = false;
  int32_t num_returned = 1;  // of the params.n sequences that run: the most probable ones
  bool want_text = true;
  bool want_token_ids = true;
  StructuredOutput structured_output;  // not compiled yet
  CacheRequest cache;
  int32_t priority = 0;
  absl::Time deadline;
  bool offline = false;
  absl::Duration ttft_target, tpot_target;
  std::string tenant;
  ReplySyntax reply;                // of a conversation, once it is rendered
  bool parallel_tool_calls = true;  // likewise

  // Cuts ids that are more than max_prompt_tokens.
  void Truncate(std::vector<int32_t>* ids) const;

 private:
  friend class Validator;
  ValidatedRequest() = default;
};

// Checks requests against the ranges of proto/quire/v1/generation.proto. Immutable, any thread. Errors are
// kInvalidArgument by InvalidField, naming field, value and limit; kNotFound for a model that is not served.
class Validator {
 public:
  explicit Validator(RequestLimits limits);

  const RequestLimits& limits() const { return limits_; }

  absl::StatusOr<ValidatedRequest> Validate(GenerateRequest request) const;

  // Whether a prompt of so many tokens leaves room for one of output.
  absl::Status CheckLength(int64_t prompt_tokens) const;

  // Whether so many bytes of text may fit into the context, and are not worth tokenizing otherwise.
  absl::Status CheckTextBytes(const std::string& field, size_t size) const;

  // Checks the ids of the prompt against vocabulary and context length, and sets params->max_tokens: to what fits
  // behind the prompt if the client gave none.
  absl::Status FitPrompt(absl::Span<const int32_t> prompt_ids, bool has_max_tokens, SamplingParams* params) const;

  // What a validated request keeps of a prompt of so many tokens and of what follows it: checks ranges and breakpoints
  // against the length.
  static absl::StatusOr<Retention> FitRetention(const CacheRequest& cache, int32_t prompt_tokens);

  static absl::Status CheckSalt(const std::string& field, const std::string& salt);
  static absl::Status CheckTenant(const std::string& field, const std::string& tenant);

 private:
  absl::Status CheckModel(const std::string& model) const;
  absl::Status CheckSampling(const GenerateRequest& in, ValidatedRequest* out) const;
  absl::Status CheckBeamSearch(const GenerateRequest& in, ValidatedRequest* out) const;
  absl::Status CheckStopping(const GenerateRequest& in, ValidatedRequest* out) const;
  static absl::Status CheckRepetition(const RepetitionRequest& in, SamplingParams* params);
  absl::Status CheckOutput(const GenerateRequest& in, ValidatedRequest* out) const;
  absl::Status CheckCache(const CacheRequest& cache) const;
  absl::Status CheckTruncation(const GenerateRequest& in, ValidatedRequest* out) const;
  absl::Status CheckPrompt(GenerateRequest* in, ValidatedRequest* out) const;

  RequestLimits limits_;
};

}  // namespace quire
