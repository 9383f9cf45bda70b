#include "server/http/sampling_fields.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/frontend/errors.h"
#include "server/http/structured_fields.h"

namespace quire {
namespace {

constexpr int64_t kMaxTimeoutMs = 7 * 86'400'000;  // a week

// {"50256": -100, ...}: keys are ids.
void ReadLogitBias(JsonFields& fields, RulesRequest* out) {
  const Json* const biases = fields.Get("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return fields.Refuse("logit_bias", "must be an object of token ids and numbers");
  for (const auto& [key, value] : biases->items()) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(key, &id)) return fields.Refuse("logit_bias", "has a key that is no token id");
    if (!value.is_number()) return fields.Refuse("logit_bias", absl::StrCat("has no number for token ", id));
    out->logit_bias.emplace_back(id, static_cast<float>(value.get<double>()));
  }
}

// -1 is llama.cpp's word for all.
std::optional<int64_t> ReadWindow(JsonFields& fields, const char* name) {
  const std::optional<int64_t> window = fields.Int(name);
  return window == -1 ? 0 : window;
}

// Names as in vLLM, else as in llama.cpp's server.
void ReadRules(JsonFields& fields, RulesRequest* out) {
  out->repetition_penalty = fields.Number("repetition_penalty");
  out->frequency_penalty = fields.Number("frequency_penalty");
  out->presence_penalty = fields.Number("presence_penalty");
  out->repeat_last_n = ReadWindow(fields, "repeat_last_n");
  ReadLogitBias(fields, out);
  out->allowed_token_ids = fields.Ints("allowed_token_ids");
  out->bad_words = fields.Strings("bad_words");
  out->no_repeat_ngram_size = fields.Int("no_repeat_ngram_size");
  out->dry_multiplier = fields.Number("dry_multiplier");
  out->dry_base = fields.Number("dry_base");
  out->dry_allowed_length = fields.Int("dry_allowed_length");
  out->dry_last_n = ReadWindow(fields, "dry_penalty_last_n");
  out->dry_sequence_breakers = fields.Strings("dry_sequence_breakers");
  out->top_n_sigma = fields.Number("top_n_sigma");
  if (out->top_n_sigma == -1.0f) out->top_n_sigma = 0;  // llama.cpp's word for off
  out->dynatemp_range = fields.Number("dynatemp_range");
  out->dynatemp_exponent = fields.Number("dynatemp_exponent");
  out->typical_p = fields.Number("typical_p");
  out->xtc_probability = fields.Number("xtc_probability");
  out->xtc_threshold = fields.Number("xtc_threshold");
  const std::optional<int64_t> version = fields.Int("mirostat");
  if (version && *version != 0 && *version != 2) fields.Refuse("mirostat", absl::StrCat(*version, " is not 0 or 2"));
  out->mirostat = version == 2;
  out->mirostat_tau = fields.Number("mirostat_tau");
  out->mirostat_eta = fields.Number("mirostat_eta");
}

void ReadBeamSearch(JsonFields& fields, GenerateRequest* out) {
  out->beam_width = fields.Int("beam_width");
  if (fields.Bool("use_beam_search").value_or(false) && !out->beam_width) {
    out->beam_width = std::max<int64_t>(2, out->n.value_or(1));
  }
  out->length_penalty = fields.Number("length_penalty");
  const Json* const early = fields.Get("early_stopping");
  if (early == nullptr) return;
  if (!early->is_boolean() && *early != "never")
    return fields.Refuse("early_stopping", "must be true, false or \"never\"");
  out->early_stopping = !early->is_boolean() ? 3 : early->get<bool>() ? 2 : 1;
}

void ReadRepetition(JsonFields& fields, GenerateRequest* out) {
  const Json* const detection = fields.Get("repetition_detection");
  if (detection == nullptr) return;
  if (!detection->is_object()) return fields.Refuse("repetition_detection", "must be an object");
  JsonFields inner(*detection, "repetition_detection.");
  RepetitionRequest& request = out->repetition_detection.emplace();
  request.max_pattern_size = inner.Int("max_pattern_size").value_or(0);
  request.min_pattern_size = inner.Int("min_pattern_size");
  request.min_count = inner.Int("min_count").value_or(0);
  if (request.min_pattern_size == 0) request.min_pattern_size.reset();  // vLLM's default
  fields.Fail(inner.status());
}

// A field of two or three words: the number of the one that stands there, from 1; 0: none.
int64_t ReadWord(JsonFields& fields, const char* name, const char* first, const char* second) {
  const std::optional<std::string> word = fields.String(name);
  if (!word || *word == first) return word ? 1 : 0;
  if (*word != second) fields.Refuse(name, absl::StrCat("must be \"", first, "\" or \"", second, "\""));
  return 2;
}

}  // namespace

void RefuseUnlessEmpty(JsonFields& fields, const char* name) {
  const Json* const value = fields.Get(name);
  if (value == nullptr || (value->is_structured() && value->empty())) return;
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return;
  fields.Refuse(name, "is not supported; leave it out");
}

void ReadSamplingFields(JsonFields& fields, GenerateRequest* out) {
  out->temperature = fields.Number("temperature");
  out->top_p = fields.Number("top_p");
  out->min_p = fields.Number("min_p");
  out->top_k = fields.Int("top_k");
  if (out->top_k == -1) out->top_k = 0;  // vLLM's word for off
  out->seed = fields.Int("seed");
  out->n = fields.Int("n");
  out->best_of = fields.Int("best_of");
  ReadBeamSearch(fields, out);
  ReadRules(fields, &out->rules);
  ReadStructuredOutput(fields, &out->structured_output);
}

void ReadStoppingFields(JsonFields& fields, GenerateRequest* out) {
  out->min_tokens = fields.Int("min_tokens").value_or(0);
  out->stop = fields.Strings("stop");
  out->stop_token_ids = fields.Ints("stop_token_ids");
  out->include_stop_str_in_output = fields.Bool("include_stop_str_in_output").value_or(false);
  out->ignore_eos = fields.Bool("ignore_eos").value_or(false);
  ReadRepetition(fields, out);
}

void ReadServingFields(JsonFields& fields, GenerateRequest* out) {
  out->skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  out->add_special_tokens = fields.Bool("add_special_tokens").value_or(out->add_special_tokens);
  out->cache.salt = fields.String("cache_salt").value_or("");
  out->priority = fields.Int("priority").value_or(0);
  out->num_speculative_tokens = fields.Int("num_speculative_tokens");
  out->truncate_prompt_tokens = fields.Int("truncate_prompt_tokens");
  out->truncation_side = ReadWord(fields, "truncation_side", "left", "right");
  out->logprobs_mode = ReadWord(fields, "logprobs_mode", "raw_logprobs", "processed_logprobs");
}

absl::Status ReadRequestHeaders(const HttpRequest& request, std::string* request_id, GenerateRequest* out) {
  if (const std::string* const id = request.Find("x-request-id")) *request_id = *id;
  if (const std::string* const tenant = request.Find("x-tenant")) out->tenant = *tenant;
  if (const std::string* const timeout = request.Find("x-request-timeout-ms")) {
    int64_t ms = 0;
    if (!absl::SimpleAtoi(*timeout, &ms) || ms < 1 || ms > kMaxTimeoutMs) {
      return InvalidField("x-request-timeout-ms",
                          absl::StrCat("'", *timeout, "' is not an integer in [1, ", kMaxTimeoutMs, "]"));
    }
    out->deadline = absl::Now() + absl::Milliseconds(ms);
  }
  return absl::OkStatus();
}

}  // namespace quire
