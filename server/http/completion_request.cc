#include "server/http/completion_request.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"
#include "server/http/sampling_fields.h"

namespace quire {
namespace {

constexpr size_t kMaxPrompts = 1024;
constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's, of /v1/completions

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
absl::Status ReadPrompts(const Json& body, CompletionRequest* out) {
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
    if (prompt.is_string()) {
      out->prompts.emplace_back(prompt.get<std::string>());
    } else if (prompt.is_array()) {
      std::optional<std::vector<int64_t>> ids = ToIds(prompt);
      if (!ids) return bad();
      out->prompts.emplace_back(*std::move(ids));
    } else {
      return bad();
    }
  }
  return absl::OkStatus();
}

// The members of the body that nothing was asked of, as far as a header can carry their names; at most 16.
std::string IgnoredFields(const JsonFields& fields, bool is_chat) {
  // Read elsewhere, by themselves.
  static constexpr std::string_view kOfChat[] = {"messages", "tools", "documents", "chat_template_kwargs"};
  constexpr size_t kMaxNames = 16, kMaxSize = 64;
  std::vector<std::string> names = fields.Unasked();
  const auto is_hidden = [&](const std::string& name) {
    const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    });
    const bool is_known =
        is_chat ? std::find(std::begin(kOfChat), std::end(kOfChat), name) != std::end(kOfChat) : name == "prompt";
    return is_known || !is_plain || name.size() > kMaxSize;
  };
  names.erase(std::remove_if(names.begin(), names.end(), is_hidden), names.end());
  if (names.size() > kMaxNames) names.resize(kMaxNames);
  return absl::StrJoin(names, ",");
}

// stream and stream_options. What is wrong within the latter comes through *nested.
void ReadStreamFields(JsonFields& fields, CompletionRequest* out, absl::Status* nested) {
  out->stream = fields.Bool("stream").value_or(false);
  const Json* const options = fields.Get("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.Refuse("stream_options", "must be an object");
  JsonFields inner(*options, "stream_options.");
  out->include_usage = inner.Bool("include_usage").value_or(false);
  out->continuous_usage = inner.Bool("continuous_usage_stats").value_or(false);
  *nested = inner.status();
}

}  // namespace

GenerateRequest CompletionRequest::Take(size_t i) {
  GenerateRequest request = i + 1 == prompts.size() ? std::move(common) : common;
  request.prompt = std::move(prompts[i]);
  request.request_id = request_id;
  if (prompts.size() > 1 && !request_id.empty()) request.request_id = absl::StrCat(request_id, "-", i);
  return request;
}

absl::Status CompletionRequest::WithNames(absl::Status status) const {
  for (const auto& [field, name] : field_names) status = RenamedField(status, field, name);
  return status;
}

absl::Status ReadSharedFields(const HttpRequest& request, JsonFields& fields, CompletionRequest* out) {
  GenerateRequest* const generate = &out->common;
  absl::Status nested;
  out->model = generate->model = fields.String("model").value_or("");
  out->request_id = fields.String("request_id").value_or("");
  ReadStreamFields(fields, out, &nested);
  ReadSamplingFields(fields, generate);
  ReadStoppingFields(fields, generate);
  ReadServingFields(fields, generate);
  out->return_token_ids = fields.Bool("return_token_ids").value_or(false);
  generate->echo = out->echo || out->return_token_ids;
  out->tokens_as_ids = fields.Bool("return_tokens_as_token_ids").value_or(false);
  generate->prompt_logprobs = fields.Int("prompt_logprobs");
  out->prompt_logprobs = generate->prompt_logprobs.has_value();
  generate->streamed = out->stream;
  out->n = generate->n.value_or(1);
  out->ignored_fields = IgnoredFields(fields, out->is_chat);
  QUIRE_RETURN_IF_ERROR(fields.status());
  QUIRE_RETURN_IF_ERROR(nested);
  return ReadRequestHeaders(request, &out->request_id, generate);
}

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const HttpRequest& request, const Json& body) {
  CompletionRequest out;
  GenerateRequest& common = out.common;
  JsonFields fields(body);
  out.echo = fields.Bool("echo").value_or(false);
  common.logprobs = fields.Int("logprobs");
  common.max_tokens = fields.Int("max_tokens").value_or(kDefaultMaxTokens);
  RefuseUnlessEmpty(fields, "suffix");
  QUIRE_RETURN_IF_ERROR(ReadSharedFields(request, fields, &out));

  if (out.echo && common.logprobs && !common.prompt_logprobs) common.prompt_logprobs = common.logprobs;
  if (out.echo && common.max_tokens == 0) {
    out.prompt_only = true;  // one token runs, and is not shown
    common.max_tokens = 1;
  }
  QUIRE_RETURN_IF_ERROR(ReadPrompts(body, &out));
  return out;
}

}  // namespace quire
