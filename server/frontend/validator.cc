#include "server/frontend/validator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"
#include "server/frontend/errors.h"
#include "server/frontend/field_checks.h"

namespace quire {
namespace {

constexpr int64_t kMaxRequestIdBytes = 256, kMaxSaltBytes = 256, kMaxStopBytes = 1024, kMaxTenantBytes = 256,
                  kMaxTargetMs = 86'400'000;
constexpr int64_t kMaxSpeculativeTokens = 64;
constexpr int64_t kMaxStops = 16, kMaxStopIds = 64, kMaxSequences = 64, kMaxPriority = 1000;
constexpr int64_t kMaxPattern = 1024;
constexpr int64_t kProcessed = 2;  // Output.LogprobsMode
// Near 0 a temperature changes nothing but the rounding.
constexpr float kGreedyBelow = 1e-5f, kLowestTemperature = 0.01f;
constexpr int64_t kMaxRanges = Retention::kMaxSpans - Retention::kMaxBreakpoints - 1;  // 1: what is generated
constexpr int64_t kMaxTtlSeconds = 30 * 86400, kDefaultBreakpointTtl = 300;

absl::Status CheckTarget(const std::string& field, std::optional<int64_t> ms, absl::Duration* target) {
  *target = ms ? absl::Milliseconds(*ms) : absl::InfiniteDuration();
  return ms ? CheckInt(field, *ms, 1, kMaxTargetMs) : absl::OkStatus();
}

absl::Status CheckTtl(const std::string& field, const std::optional<double>& seconds) {
  // False for NaN, and for what is less than a Duration can tell from 0.
  const auto valid = [](double s) {
    return s <= static_cast<double>(kMaxTtlSeconds) && absl::Seconds(s) > absl::ZeroDuration();
  };
  if (!seconds || valid(*seconds)) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(*seconds, " is out of range; must be in (0, ", kMaxTtlSeconds, "] seconds"));
}

absl::Status CheckKeep(const std::string& field, const KeepRequest& keep) {
  QUIRE_RETURN_IF_ERROR(
      CheckInt(absl::StrCat(field, ".priority"), keep.priority.value_or(kDefaultRetention), 0, kMaxRetention));
  return CheckTtl(absl::StrCat(field, ".ttl_seconds"), keep.ttl_seconds);
}

absl::Duration TtlOf(const std::optional<double>& seconds) {
  return seconds ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

absl::Status Keep(int64_t begin, int64_t end, const KeepRequest& keep, Retention* retention) {
  return retention->AddSpan(static_cast<int32_t>(begin), static_cast<int32_t>(end),
                            static_cast<int32_t>(keep.priority.value_or(kDefaultRetention)), TtlOf(keep.ttl_seconds));
}

}  // namespace

Validator::Validator(RequestLimits limits) : limits_(std::move(limits)) {}

absl::StatusOr<ValidatedRequest> Validator::Validate(GenerateRequest request) const {
  ValidatedRequest out;
  QUIRE_RETURN_IF_ERROR(CheckName("request_id", request.request_id, kMaxRequestIdBytes));
  QUIRE_RETURN_IF_ERROR(CheckModel(request.model));
  QUIRE_RETURN_IF_ERROR(CheckCache(request.cache));
  QUIRE_RETURN_IF_ERROR(CheckInt("priority", request.priority, -kMaxPriority, kMaxPriority));
  if (request.num_speculative_tokens) {
    QUIRE_RETURN_IF_ERROR(
        CheckInt("num_speculative_tokens", *request.num_speculative_tokens, 0, kMaxSpeculativeTokens));
    out.params.num_speculative_tokens = static_cast<int32_t>(*request.num_speculative_tokens);
  }
  QUIRE_RETURN_IF_ERROR(CheckTenant("x-tenant", request.tenant));
  QUIRE_RETURN_IF_ERROR(CheckTarget("ttft_target_ms", request.ttft_target_ms, &out.ttft_target));
  QUIRE_RETURN_IF_ERROR(CheckTarget("tpot_target_ms", request.tpot_target_ms, &out.tpot_target));
  QUIRE_RETURN_IF_ERROR(CheckSampling(request, &out));
  QUIRE_RETURN_IF_ERROR(CheckBeamSearch(request, &out));
  QUIRE_RETURN_IF_ERROR(CheckStopping(request, &out));
  QUIRE_RETURN_IF_ERROR(CheckOutput(request, &out));
  QUIRE_RETURN_IF_ERROR(CheckPrompt(&request, &out));
  if (request.structured_output.kind != StructuredOutput::Kind::kFree && out.params.beam_width > 0) {
    return InvalidField(request.structured_output.field, "does not go with beam search");
  }
  out.structured_output = std::move(request.structured_output);
  out.request_id = std::move(request.request_id);
  out.cache = std::move(request.cache);
  out.priority = static_cast<int32_t>(request.priority);
  out.deadline = request.deadline;
  out.offline = request.offline;
  out.tenant = std::move(request.tenant);
  return out;
}

absl::Status Validator::CheckModel(const std::string& model) const {
  if (model.empty()) return absl::OkStatus();
  for (const std::string& name : limits_.served_model_names) {
    if (model == name) return absl::OkStatus();
  }
  return WithField(absl::NotFoundError(absl::StrCat("model: ", Quoted(model), " is not served; served: ",
                                                    absl::StrJoin(limits_.served_model_names, ", "))),
                   "model");
}

absl::Status Validator::CheckSampling(const GenerateRequest& in, ValidatedRequest* out) const {
  SamplingParams& params = out->params;
  params.temperature = in.temperature.value_or(limits_.default_temperature.value_or(1.0f));
  QUIRE_RETURN_IF_ERROR(CheckFloat("sampling.temperature", params.temperature,
                                   {.min = 0, .max = std::numeric_limits<float>::infinity()}));
  if (params.temperature >= kGreedyBelow) params.temperature = std::max(params.temperature, kLowestTemperature);
  params.min_p = in.min_p.value_or(limits_.default_min_p.value_or(0.0f));
  QUIRE_RETURN_IF_ERROR(CheckFloat("sampling.min_p", params.min_p, {.min = 0, .max = 1}));
  params.top_p = in.top_p.value_or(limits_.default_top_p.value_or(1.0f));
  QUIRE_RETURN_IF_ERROR(CheckFloat("sampling.top_p", params.top_p, {.min = 0, .max = 1, .min_is_open = true}));
  QUIRE_ASSIGN_OR_RETURN(out->rules,
                         CheckSamplingRules(in.rules, limits_.vocab_size,
                                            in.beam_width ? std::nullopt : limits_.default_repetition_penalty));

  const int64_t top_k = in.top_k.value_or(limits_.default_top_k.value_or(0));
  QUIRE_RETURN_IF_ERROR(CheckInt("sampling.top_k", top_k, 0, std::numeric_limits<uint32_t>::max()));
  params.top_k = static_cast<int32_t>(std::min<int64_t>(top_k, limits_.vocab_size));

  const int64_t n = in.n.value_or(1);
  QUIRE_RETURN_IF_ERROR(CheckInt("sampling.n", n, 1, kMaxSequences));
  out->num_returned = static_cast<int32_t>(n);
  const int64_t best_of = in.best_of.value_or(n);
  QUIRE_RETURN_IF_ERROR(CheckInt("sampling.best_of", best_of, n, kMaxSequences));
  if (best_of > n && in.streamed) {
    return InvalidField("sampling.best_of",
                        absl::StrCat(best_of, " is above n = ", n,
                                     ": what is best is known at the end only; use Generate, or do not stream"));
  }
  if (best_of > n && in.beam_width)
    return InvalidField("sampling.best_of", "does not go with beam search; give its width");
  params.n = static_cast<int32_t>(best_of);
  out->has_seed = in.seed.has_value();
  params.seed = static_cast<uint64_t>(in.seed.value_or(0));
  return absl::OkStatus();
}

absl::Status Validator::CheckBeamSearch(const GenerateRequest& in, ValidatedRequest* out) const {
  SamplingParams& params = out->params;
  if (!in.beam_width) {
    if (!in.length_penalty && in.early_stopping == 0) return absl::OkStatus();
    return InvalidField("sampling.beam_search.width", "is missing; length_penalty and early_stopping need it");
  }
  const auto forbid = [](bool given, const char* field, const char* problem) {
    return given ? InvalidField(field, problem) : absl::OkStatus();
  };
  const char* const draws = "does not go with beam search, which draws nothing; leave it out";
  QUIRE_RETURN_IF_ERROR(
      CheckInt("sampling.beam_search.width", *in.beam_width, std::max<int64_t>(2, params.n), kMaxSequences));
  QUIRE_RETURN_IF_ERROR(forbid(in.temperature.value_or(0) > 0, "sampling.temperature", draws));
  QUIRE_RETURN_IF_ERROR(forbid(in.top_k.value_or(0) > 0, "sampling.top_k", draws));
  QUIRE_RETURN_IF_ERROR(forbid(in.top_p.value_or(1) < 1, "sampling.top_p", draws));
  QUIRE_RETURN_IF_ERROR(forbid(in.min_p.value_or(0) > 0, "sampling.min_p", draws));
  QUIRE_RETURN_IF_ERROR(
      forbid(!in.stop.empty(), "stopping.stop", "does not go with beam search; give stop_token_ids instead"));
  QUIRE_RETURN_IF_ERROR(forbid(in.logprobs.value_or(0) < 0, "output.logprobs",
                               "-1 does not go with beam search; give the number of ids per token"));
  QUIRE_RETURN_IF_ERROR(
      forbid(in.logprobs_mode == kProcessed, "output.logprobs_mode", "PROCESSED does not go with beam search"));
  QUIRE_RETURN_IF_ERROR(forbid(in.repetition_detection.has_value(), "stopping.repetition_detection",
                               "does not go with beam search; leave it out"));
  QUIRE_RETURN_IF_ERROR(forbid(out->rules.any(), "sampling.beam_search",
                               "takes no penalties, biases or other rules for tokens; leave these out"));
  params.beam_width = static_cast<int32_t>(*in.beam_width);
  params.temperature = 0;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  params.length_penalty = in.length_penalty.value_or(1.0f);
  if (!std::isfinite(params.length_penalty)) {
    return InvalidField("sampling.beam_search.length_penalty",
                        absl::StrCat(params.length_penalty, " is out of range; must be finite"));
  }
  QUIRE_RETURN_IF_ERROR(CheckInt("sampling.beam_search.early_stopping", in.early_stopping, 0, 3));
  params.early_stopping = in.early_stopping == 2   ? EarlyStopping::kYes
                          : in.early_stopping == 3 ? EarlyStopping::kNever
                                                   : EarlyStopping::kNo;
  return absl::OkStatus();
}

absl::Status Validator::CheckStopping(const GenerateRequest& in, ValidatedRequest* out) const {
  SamplingParams& params = out->params;
  out->has_max_tokens = in.max_tokens.has_value();
  if (out->has_max_tokens) {
    QUIRE_RETURN_IF_ERROR(CheckInt("stopping.max_tokens", *in.max_tokens, 1, limits_.max_model_len - 1));
    params.max_tokens = static_cast<int32_t>(*in.max_tokens);
  }
  const int64_t most = out->has_max_tokens ? params.max_tokens : limits_.max_model_len - 1;
  if (in.min_tokens < 0 || in.min_tokens > most)
    return InvalidField("stopping.min_tokens",
                        absl::StrCat(in.min_tokens, " is out of range; must be in [0, max_tokens = ", most, "]"));
  params.min_tokens = static_cast<int32_t>(in.min_tokens);

  if (static_cast<int64_t>(in.stop.size()) > kMaxStops)
    return InvalidField("stopping.stop",
                        absl::StrCat(in.stop.size(), " stop strings are too many; at most ", kMaxStops));
  for (size_t i = 0; i < in.stop.size(); ++i) {
    const std::string field = absl::StrCat("stopping.stop[", i, "]");
    if (in.stop[i].empty()) return InvalidField(field, "is empty; must have 1 to 1024 bytes");
    QUIRE_RETURN_IF_ERROR(CheckBytes(field, in.stop[i], kMaxStopBytes));
  }
  params.stop_strings = in.stop;

  if (static_cast<int64_t>(in.stop_token_ids.size()) > kMaxStopIds)
    return InvalidField("stopping.stop_token_ids",
                        absl::StrCat(in.stop_token_ids.size(), " ids are too many; at most ", kMaxStopIds));
  for (size_t i = 0; i < in.stop_token_ids.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(
        CheckInt(absl::StrCat("stopping.stop_token_ids[", i, "]"), in.stop_token_ids[i], 0, limits_.vocab_size - 1));
    params.stop_token_ids.push_back(static_cast<int32_t>(in.stop_token_ids[i]));
  }
  params.include_stop_str_in_output = in.include_stop_str_in_output;
  params.ignore_eos = in.ignore_eos;
  return in.repetition_detection ? CheckRepetition(*in.repetition_detection, &params) : absl::OkStatus();
}

absl::Status Validator::CheckRepetition(const RepetitionRequest& in, SamplingParams* params) {
  const std::string field = "stopping.repetition_detection";
  const int64_t min_size = in.min_pattern_size.value_or(1);
  QUIRE_RETURN_IF_ERROR(CheckInt(field + ".max_pattern_size", in.max_pattern_size, 1, kMaxPattern));
  QUIRE_RETURN_IF_ERROR(CheckInt(field + ".min_pattern_size", min_size, 1, in.max_pattern_size));
  QUIRE_RETURN_IF_ERROR(CheckInt(field + ".min_count", in.min_count, 2, kMaxPattern));
  params->repetition_detection = {static_cast<int32_t>(in.max_pattern_size), static_cast<int32_t>(min_size),
                                  static_cast<int32_t>(in.min_count)};
  return absl::OkStatus();
}

absl::Status Validator::CheckOutput(const GenerateRequest& in, ValidatedRequest* out) const {
  const bool whole_vocabulary = limits_.max_logprobs < 0;
  const int64_t min = whole_vocabulary ? -1 : 0;
  const int64_t max = whole_vocabulary ? limits_.vocab_size : limits_.max_logprobs;
  if (in.logprobs) {
    QUIRE_RETURN_IF_ERROR(CheckInt("output.logprobs", *in.logprobs, min, max));
    out->params.logprobs = static_cast<int32_t>(*in.logprobs);
  }
  if (in.prompt_logprobs) {
    QUIRE_RETURN_IF_ERROR(CheckInt("output.prompt_logprobs", *in.prompt_logprobs, min, max));
    out->params.prompt_logprobs = static_cast<int32_t>(*in.prompt_logprobs);
  }
  const bool chooses = out->params.n > out->num_returned;  // by log-probabilities
  QUIRE_RETURN_IF_ERROR(CheckInt("output.logprobs_mode", in.logprobs_mode, 0, kProcessed));
  const bool is_processed =
      in.logprobs_mode == 0 ? limits_.processed_logprobs && !in.beam_width : in.logprobs_mode == kProcessed;
  out->params.processed_logprobs = is_processed && (in.logprobs.has_value() || chooses);
  out->echo = in.echo;
  out->params.skip_special_tokens = in.skip_special_tokens;
  out->want_text = in.want_text;
  out->want_token_ids = in.want_token_ids;
  return absl::OkStatus();
}

absl::Status Validator::CheckSalt(const std::string& field, const std::string& salt) {
  return CheckBytes(field, salt, kMaxSaltBytes);
}

absl::Status Validator::CheckTenant(const std::string& field, const std::string& tenant) {
  return CheckName(field, tenant, kMaxTenantBytes);
}

absl::Status Validator::CheckCache(const CacheRequest& cache) const {
  QUIRE_RETURN_IF_ERROR(CheckSalt("cache.salt", cache.salt));
  if (static_cast<int64_t>(cache.retention.size()) > kMaxRanges)
    return InvalidField("cache.retention",
                        absl::StrCat(cache.retention.size(), " ranges are too many; at most ", kMaxRanges));
  for (size_t i = 0; i < cache.retention.size(); ++i) {
    const CacheRequest::Range& range = cache.retention[i];
    const std::string field = absl::StrCat("cache.retention[", i, "]");
    const int64_t last = limits_.max_model_len - 1;
    QUIRE_RETURN_IF_ERROR(CheckInt(absl::StrCat(field, ".begin"), range.begin, 0, last - 1));
    if (range.end) QUIRE_RETURN_IF_ERROR(CheckInt(absl::StrCat(field, ".end"), *range.end, range.begin + 1, last));
    QUIRE_RETURN_IF_ERROR(CheckKeep(absl::StrCat(field, ".keep"), range.keep));
  }
  if (cache.decode_retention) QUIRE_RETURN_IF_ERROR(CheckKeep("cache.decode_retention", *cache.decode_retention));
  if (static_cast<int64_t>(cache.breakpoints.size()) > Retention::kMaxBreakpoints)
    return InvalidField("cache.breakpoints",
                        absl::StrCat(cache.breakpoints.size(), " are too many; at most ", Retention::kMaxBreakpoints));
  for (size_t i = 0; i < cache.breakpoints.size(); ++i) {
    const std::string field = absl::StrCat("cache.breakpoints[", i, "]");
    QUIRE_RETURN_IF_ERROR(
        CheckInt(absl::StrCat(field, ".position"), cache.breakpoints[i].position, 1, limits_.max_model_len - 1));
    QUIRE_RETURN_IF_ERROR(CheckTtl(absl::StrCat(field, ".ttl_seconds"), cache.breakpoints[i].ttl_seconds));
  }
  return absl::OkStatus();
}

absl::StatusOr<Retention> Validator::FitRetention(const CacheRequest& cache, int32_t prompt_tokens) {
  const auto beyond = [prompt_tokens](const std::string& field, int64_t value) {
    return InvalidField(field, absl::StrCat(value, " lies beyond the prompt, which has ", prompt_tokens, " tokens"));
  };
  Retention retention;
  for (size_t i = 0; i < cache.retention.size(); ++i) {
    const CacheRequest::Range& range = cache.retention[i];
    const std::string field = absl::StrCat("cache.retention[", i, "]");
    if (range.begin >= prompt_tokens) return beyond(absl::StrCat(field, ".begin"), range.begin);
    const int64_t end = range.end.value_or(prompt_tokens);
    if (end > prompt_tokens) return beyond(absl::StrCat(field, ".end"), end);
    QUIRE_RETURN_IF_ERROR(Keep(range.begin, end, range.keep, &retention));
  }
  for (size_t i = 0; i < cache.breakpoints.size(); ++i) {
    const CacheRequest::Breakpoint& mark = cache.breakpoints[i];
    if (mark.position > prompt_tokens)
      return beyond(absl::StrCat("cache.breakpoints[", i, "].position"), mark.position);
    QUIRE_RETURN_IF_ERROR(
        retention.AddBreakpoint(static_cast<int32_t>(mark.position),
                                absl::Seconds(mark.ttl_seconds.value_or(static_cast<double>(kDefaultBreakpointTtl)))));
  }
  if (cache.decode_retention)
    QUIRE_RETURN_IF_ERROR(
        Keep(prompt_tokens, std::numeric_limits<int32_t>::max(), *cache.decode_retention, &retention));
  return retention;
}

absl::Status Validator::CheckTruncation(const GenerateRequest& in, ValidatedRequest* out) const {
  QUIRE_RETURN_IF_ERROR(CheckInt("truncation_side", in.truncation_side, 0, 2));
  if (!in.truncate_prompt_tokens) return absl::OkStatus();
  const int64_t most = *in.truncate_prompt_tokens;
  if (most != -1) QUIRE_RETURN_IF_ERROR(CheckInt("truncate_prompt_tokens", most, 1, limits_.max_model_len - 1));
  const int64_t room = limits_.max_model_len - (out->has_max_tokens ? out->params.max_tokens : 1);
  out->max_prompt_tokens = static_cast<int32_t>(most == -1 ? room : most);
  out->keeps_first = in.truncation_side == 2;
  return absl::OkStatus();
}

void ValidatedRequest::Truncate(std::vector<int32_t>* ids) const {
  const auto size = static_cast<int64_t>(ids->size());
  if (max_prompt_tokens < 0 || size <= max_prompt_tokens) return;
  if (!keeps_first) ids->erase(ids->begin(), ids->begin() + (size - max_prompt_tokens));
  ids->resize(max_prompt_tokens);
}

absl::Status Validator::CheckPrompt(GenerateRequest* in, ValidatedRequest* out) const {
  QUIRE_RETURN_IF_ERROR(CheckTruncation(*in, out));
  out->add_special_tokens = in->add_special_tokens;
  std::vector<int32_t> ids;
  if (in->fork) {
    out->fork_of = {in->fork->handle, in->fork->sequence_index};
    ids = std::move(in->fork->tokens);
  }
  if (auto* chat = std::get_if<std::shared_ptr<const ChatPrompt>>(&in->prompt)) {
    out->prompt = std::move(*chat);
    out->before_text = std::move(ids);
    return absl::OkStatus();
  }
  if (auto* text = std::get_if<std::string>(&in->prompt)) {
    if (out->max_prompt_tokens < 0) QUIRE_RETURN_IF_ERROR(CheckTextBytes("text", text->size()));
    if (!utf8::IsValid(*text)) return InvalidField("text", "not valid UTF-8");
    out->prompt = std::move(*text);
    out->before_text = std::move(ids);
    return absl::OkStatus();
  }
  static const std::vector<int64_t> kNothing;
  const auto* given = std::get_if<std::vector<int64_t>>(&in->prompt);
  if (given == nullptr && !in->fork) return InvalidField("prompt", "is missing; give text or token_ids");
  if (given == nullptr) given = &kNothing;
  const bool is_cut = out->max_prompt_tokens >= 0;
  if (!is_cut) QUIRE_RETURN_IF_ERROR(CheckLength(static_cast<int64_t>(ids.size() + given->size())));
  ids.reserve(ids.size() + given->size());
  for (size_t i = 0; i < given->size(); ++i) {
    QUIRE_RETURN_IF_ERROR(CheckInt(absl::StrCat("token_ids.ids[", i, "]"), (*given)[i], 0, limits_.vocab_size - 1));
    ids.push_back(static_cast<int32_t>((*given)[i]));
  }
  out->Truncate(&ids);
  SamplingParams params = out->params;
  QUIRE_RETURN_IF_ERROR(FitPrompt(ids, out->has_max_tokens, &params));
  out->prompt = std::move(ids);
  return absl::OkStatus();
}

absl::Status Validator::CheckTextBytes(const std::string& field, size_t size) const {
  if (static_cast<int64_t>(size) <= limits_.max_text_bytes) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(size, " bytes are too long; max_model_len is ", limits_.max_model_len,
                                          " tokens, which leaves at most ", limits_.max_text_bytes, " bytes"));
}

absl::Status Validator::CheckLength(int64_t prompt_tokens) const {
  if (prompt_tokens == 0) return InvalidField("prompt", "has 0 tokens; must have at least 1");
  if (prompt_tokens < limits_.max_model_len) return absl::OkStatus();
  return InvalidField("prompt", absl::StrCat("has ", prompt_tokens, " tokens; max_model_len is ", limits_.max_model_len,
                                             ", which leaves at most ", limits_.max_model_len - 1,
                                             " for a prompt with one output token"));
}

absl::Status Validator::FitPrompt(absl::Span<const int32_t> prompt_ids, bool has_max_tokens,
                                  SamplingParams* params) const {
  const auto length = static_cast<int64_t>(prompt_ids.size());
  QUIRE_RETURN_IF_ERROR(CheckLength(length));
  for (int64_t i = 0; i < length; ++i) {
    if (prompt_ids[i] < 0 || prompt_ids[i] >= limits_.vocab_size)
      return InvalidField("prompt", absl::StrCat("token ", i, " has id ", prompt_ids[i],
                                                 "; the model's vocabulary has ", limits_.vocab_size, " ids"));
  }
  const int64_t room = limits_.max_model_len - length;
  if (has_max_tokens && params->max_tokens > room)
    return InvalidField("stopping.max_tokens",
                        absl::StrCat(params->max_tokens, " is too many: the prompt has ", length,
                                     " tokens and max_model_len is ", limits_.max_model_len, ", which leaves ", room));
  if (!has_max_tokens) params->max_tokens = static_cast<int32_t>(room);
  if (params->min_tokens > params->max_tokens)
    return InvalidField(
        "stopping.min_tokens",
        absl::StrCat(params->min_tokens, " is out of range; must be in [0, max_tokens = ", params->max_tokens, "]"));
  return absl::OkStatus();
}

}  // namespace quire
