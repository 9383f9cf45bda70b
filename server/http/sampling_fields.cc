#include "server/http/sampling_fields.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

constexpr int64_t kMaxTimeoutMs = 7 * 86'400'000;  // a week

// A number that does nothing may stand there; any other is refused until it does what it says.
void RefuseUnlessNeutral(JsonFields& fields, const char* name, float neutral) {
  const std::optional<float> value = fields.Number(name);
  if (value && *value != neutral) fields.Refuse(name, absl::StrCat("is not supported; leave it out or ", neutral));
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
  for (const char* const name : {"presence_penalty", "frequency_penalty"}) RefuseUnlessNeutral(fields, name, 0);
  RefuseUnlessNeutral(fields, "repetition_penalty", 1);
  for (const char* const name : {"logit_bias", "allowed_token_ids", "bad_words", "structured_outputs"})
    RefuseUnlessEmpty(fields, name);
}

void ReadStoppingFields(JsonFields& fields, GenerateRequest* out) {
  out->min_tokens = fields.Int("min_tokens").value_or(0);
  out->stop = fields.Strings("stop");
  out->stop_token_ids = fields.Ints("stop_token_ids");
  out->include_stop_str_in_output = fields.Bool("include_stop_str_in_output").value_or(false);
  out->ignore_eos = fields.Bool("ignore_eos").value_or(false);
}

void ReadServingFields(JsonFields& fields, GenerateRequest* out) {
  out->skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  out->add_special_tokens = fields.Bool("add_special_tokens").value_or(out->add_special_tokens);
  out->cache.salt = fields.String("cache_salt").value_or("");
  out->priority = fields.Int("priority").value_or(0);
  RefuseUnlessEmpty(fields, "truncate_prompt_tokens");
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
