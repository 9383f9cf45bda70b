#include "server/http/completion_request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

constexpr size_t kMaxPrompts = 1024;
constexpr int64_t kDefaultMaxTokens = 16;          // OpenAI's, of /v1/completions
constexpr int64_t kMaxTimeoutMs = 7 * 86'400'000;  // a week

// A number that does nothing may stand there; any other is refused until it does what it says.
void RefuseUnlessNeutral(JsonFields& fields, const char* name, float neutral) {
  const std::optional<float> value = fields.Number(name);
  if (value && *value != neutral) fields.Refuse(name, absl::StrCat("is not supported; leave it out or ", neutral));
}

void RefuseUnlessEmpty(JsonFields& fields, const char* name) {
  const Json* const value = fields.Get(name);
  if (value == nullptr || (value->is_structured() && value->empty())) return;
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return;
  fields.Refuse(name, "is not supported; leave it out");
}

void ReadSampling(JsonFields& fields, GenerateRequest* out) {
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

void ReadStopping(JsonFields& fields, GenerateRequest* out) {
  out->min_tokens = fields.Int("min_tokens").value_or(0);
  out->stop = fields.Strings("stop");
  out->stop_token_ids = fields.Ints("stop_token_ids");
  out->include_stop_str_in_output = fields.Bool("include_stop_str_in_output").value_or(false);
  out->ignore_eos = fields.Bool("ignore_eos").value_or(false);
}

void ReadOutput(JsonFields& fields, GenerateRequest* out) {
  out->skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  out->add_special_tokens = fields.Bool("add_special_tokens").value_or(out->add_special_tokens);
  out->cache.salt = fields.String("cache_salt").value_or("");
  out->priority = fields.Int("priority").value_or(0);
  RefuseUnlessEmpty(fields, "truncate_prompt_tokens");
}

void ReadStream(JsonFields& fields, CompletionRequest* out, absl::Status* nested) {
  out->stream = fields.Bool("stream").value_or(false);
  const Json* const options = fields.Get("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.Refuse("stream_options", "must be an object");
  JsonFields inner(*options, "stream_options.");
  out->include_usage = inner.Bool("include_usage").value_or(false);
  out->continuous_usage = inner.Bool("continuous_usage_stats").value_or(false);
  *nested = inner.status();
}

absl::Status ReadHeaders(const HttpRequest& request, CompletionRequest* out, GenerateRequest* common) {
  if (const std::string* const id = request.Find("x-request-id")) out->request_id = *id;
  if (const std::string* const tenant = request.Find("x-tenant")) common->tenant = *tenant;
  if (const std::string* const timeout = request.Find("x-request-timeout-ms")) {
    int64_t ms = 0;
    if (!absl::SimpleAtoi(*timeout, &ms) || ms < 1 || ms > kMaxTimeoutMs) {
      return InvalidField("x-request-timeout-ms",
                          absl::StrCat("'", *timeout, "' is not an integer in [1, ", kMaxTimeoutMs, "]"));
    }
    common->deadline = absl::Now() + absl::Milliseconds(ms);
  }
  return absl::OkStatus();
}

std::optional<std::vector<int64_t>> ToIds(const Json& list) {
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const Json& item : list) {
    const std::optional<int64_t> id = ToInt(item);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

// A string, a list of ids, or a list of either.
absl::Status ReadPrompts(const Json& body, const GenerateRequest& common, CompletionRequest* out) {
  const auto bad = [] {
    return InvalidField("prompt", "must be a string, a list of token ids, or a list of strings or of such lists");
  };
  const auto found = body.find("prompt");
  if (found == body.end() || found->is_null()) return InvalidField("prompt", "is missing");
  const bool is_one = found->is_string() || (found->is_array() && !found->empty() && found->front().is_number());
  if (!is_one && (!found->is_array() || found->empty())) return bad();
  const size_t count = is_one ? 1 : found->size();
  if (count > kMaxPrompts)
    return InvalidField("prompt", absl::StrCat(count, " prompts are too many; at most ", kMaxPrompts));
  for (size_t i = 0; i < count; ++i) {
    const Json& prompt = is_one ? *found : (*found)[i];
    GenerateRequest request = common;
    if (prompt.is_string()) {
      request.prompt = prompt.get<std::string>();
    } else if (prompt.is_array()) {
      std::optional<std::vector<int64_t>> ids = ToIds(prompt);
      if (!ids) return bad();
      request.prompt = *std::move(ids);
    } else {
      return bad();
    }
    request.request_id = out->request_id;
    if (count > 1 && !out->request_id.empty()) request.request_id = absl::StrCat(out->request_id, "-", i);
    out->prompts.push_back(std::move(request));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const HttpRequest& request, const Json& body) {
  CompletionRequest out;
  GenerateRequest common;
  JsonFields fields(body);
  absl::Status nested;
  out.model = common.model = fields.String("model").value_or("");
  out.request_id = fields.String("request_id").value_or("");
  ReadStream(fields, &out, &nested);
  ReadSampling(fields, &common);
  ReadStopping(fields, &common);
  ReadOutput(fields, &common);
  out.echo = fields.Bool("echo").value_or(false);
  out.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  common.logprobs = fields.Int("logprobs");
  if (fields.Get("prompt_logprobs") != nullptr)
    fields.Refuse("prompt_logprobs", "is not supported; scores of the prompt come with echo and logprobs");
  common.max_tokens = fields.Int("max_tokens").value_or(kDefaultMaxTokens);
  RefuseUnlessEmpty(fields, "suffix");
  RefuseUnlessEmpty(fields, "response_format");
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(nested);
  QUIRE_RETURN_IF_ERROR(ReadHeaders(request, &out, &common));

  if (out.echo && common.logprobs) common.prompt_logprobs = common.logprobs;
  if (out.echo && common.max_tokens == 0) {
    out.prompt_only = true;  // one token runs, and is not shown
    common.max_tokens = 1;
  }
  common.streamed = out.stream;
  out.n = common.n.value_or(1);
  QUIRE_RETURN_IF_ERROR(ReadPrompts(body, common, &out));
  return out;
}

}  // namespace quire
