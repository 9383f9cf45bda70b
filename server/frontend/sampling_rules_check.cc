#include "server/frontend/sampling_rules_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"
#include "server/frontend/field_checks.h"

namespace quire {
namespace {

constexpr int64_t kMaxBiases = 1024, kMaxBadWords = 256, kMaxBadWordBytes = 256, kMaxBreakers = 16,
                  kMaxBreakerBytes = 40, kMaxLength = 1024, kMaxWindow = std::numeric_limits<int32_t>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr const char* kUsualBreakers[] = {"\n", ":", "\"", "*"};

// A bit for each id.
std::vector<uint32_t> NoIds(int32_t vocab_size) { return std::vector<uint32_t>((vocab_size + 31) / 32, 0); }
void AddId(int32_t id, std::vector<uint32_t>* ids) { (*ids)[id / 32] |= uint32_t{1} << (id % 32); }

// Sets *out to the value, if there is one and it is in range.
absl::Status Read(const char* field, const std::optional<float>& value, FloatRange range, float* out) {
  if (value) *out = *value;
  return value ? CheckFloat(field, *value, range) : absl::OkStatus();
}

absl::Status Read(const char* field, const std::optional<int64_t>& value, int64_t min, int64_t max, int32_t* out) {
  if (!value) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(CheckInt(field, *value, min, max));
  *out = static_cast<int32_t>(*value);
  return absl::OkStatus();
}

absl::Status CheckTexts(const std::string& field, const std::vector<std::string>& texts, int64_t max_count,
                        int64_t max_bytes) {
  const auto count = static_cast<int64_t>(texts.size());
  if (count > max_count) return InvalidField(field, absl::StrCat(count, " are too many; at most ", max_count));
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = absl::StrCat(field, "[", i, "]");
    if (texts[i].empty()) return InvalidField(name, absl::StrCat("is empty; must have 1 to ", max_bytes, " bytes"));
    QUIRE_RETURN_IF_ERROR(CheckBytes(name, texts[i], max_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const RulesRequest& in, int32_t vocab_size, SamplingRules* out) {
  const auto num_biases = static_cast<int64_t>(in.logit_bias.size());
  if (num_biases > kMaxBiases)
    return InvalidField("sampling.logit_bias", absl::StrCat(num_biases, " ids are too many; at most ", kMaxBiases));
  absl::flat_hash_set<int64_t> seen;
  for (const auto& [id, bias] : in.logit_bias) {
    QUIRE_RETURN_IF_ERROR(CheckInt("sampling.logit_bias", id, 0, vocab_size - 1));
    QUIRE_RETURN_IF_ERROR(CheckFloat(absl::StrCat("sampling.logit_bias[", id, "]"), bias, {.min = -100, .max = 100}));
    if (!seen.insert(id).second) return InvalidField("sampling.logit_bias", absl::StrCat("has id ", id, " twice"));
    if (bias != 0) out->logit_bias.push_back({static_cast<int32_t>(id), bias});
  }
  if (!in.allowed_token_ids.empty()) out->allowed_ids = NoIds(vocab_size);
  for (size_t i = 0; i < in.allowed_token_ids.size(); ++i) {
    const int64_t id = in.allowed_token_ids[i];
    QUIRE_RETURN_IF_ERROR(CheckInt(absl::StrCat("sampling.allowed_token_ids[", i, "]"), id, 0, vocab_size - 1));
    AddId(static_cast<int32_t>(id), &out->allowed_ids);
  }
  return absl::OkStatus();
}

absl::Status CheckPenalties(const RulesRequest& in, const std::optional<float>& repetition_penalty,
                            SamplingRules* out) {
  const FloatRange two = {.min = -2, .max = 2};
  if (repetition_penalty) out->repetition_penalty = *repetition_penalty;
  QUIRE_RETURN_IF_ERROR(Read("sampling.repetition_penalty", in.repetition_penalty,
                             {.min = 0, .max = 100, .min_is_open = true}, &out->repetition_penalty));
  QUIRE_RETURN_IF_ERROR(Read("sampling.frequency_penalty", in.frequency_penalty, two, &out->frequency_penalty));
  QUIRE_RETURN_IF_ERROR(Read("sampling.presence_penalty", in.presence_penalty, two, &out->presence_penalty));
  QUIRE_RETURN_IF_ERROR(Read("sampling.repeat_last_n", in.repeat_last_n, 0, kMaxWindow, &out->repeat_last_n));
  return Read("sampling.no_repeat_ngram_size", in.no_repeat_ngram_size, 0, kMaxLength, &out->no_repeat_ngram_size);
}

absl::Status CheckDry(const RulesRequest& in, CheckedRules* out) {
  SamplingRules& rules = out->rules;
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.dry.multiplier", in.dry_multiplier, {.min = 0, .max = 100}, &rules.dry_multiplier));
  QUIRE_RETURN_IF_ERROR(Read("sampling.dry.base", in.dry_base, {.min = 1, .max = 100}, &rules.dry_base));
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.dry.allowed_length", in.dry_allowed_length, 1, kMaxLength, &rules.dry_allowed_length));
  QUIRE_RETURN_IF_ERROR(Read("sampling.dry.last_n", in.dry_last_n, 0, kMaxWindow, &rules.dry_last_n));
  QUIRE_RETURN_IF_ERROR(
      CheckTexts("sampling.dry.sequence_breakers", in.dry_sequence_breakers, kMaxBreakers, kMaxBreakerBytes));
  if (rules.dry_multiplier == 0) return absl::OkStatus();
  out->breakers = in.dry_sequence_breakers;
  if (out->breakers.empty()) out->breakers.assign(std::begin(kUsualBreakers), std::end(kUsualBreakers));
  return absl::OkStatus();
}

absl::Status CheckFilters(const RulesRequest& in, SamplingRules* out) {
  QUIRE_RETURN_IF_ERROR(Read("sampling.top_n_sigma", in.top_n_sigma, {.min = 0, .max = kInfinity}, &out->top_n_sigma));
  QUIRE_RETURN_IF_ERROR(Read("sampling.dynamic_temperature.range", in.dynatemp_range, {.min = 0, .max = kInfinity},
                             &out->dynatemp_range));
  QUIRE_RETURN_IF_ERROR(Read("sampling.dynamic_temperature.exponent", in.dynatemp_exponent,
                             {.min = 0, .max = 100, .min_is_open = true}, &out->dynatemp_exponent));
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.typical_p", in.typical_p, {.min = 0, .max = 1, .min_is_open = true}, &out->typical_p));
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.xtc.probability", in.xtc_probability, {.min = 0, .max = 1}, &out->xtc_probability));
  QUIRE_RETURN_IF_ERROR(Read("sampling.xtc.threshold", in.xtc_threshold, {.min = 0, .max = 0.5f, .min_is_open = true},
                             &out->xtc_threshold));
  float tau = 5;
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.mirostat.tau", in.mirostat_tau, {.min = 0, .max = 100, .min_is_open = true}, &tau));
  QUIRE_RETURN_IF_ERROR(
      Read("sampling.mirostat.eta", in.mirostat_eta, {.min = 0, .max = 1, .min_is_open = true}, &out->mirostat_eta));
  if (in.mirostat) out->mirostat_tau = tau;
  return absl::OkStatus();
}

// A word's ids, as it begins a text and as it stands behind a space.
absl::Status AddBadWord(const std::string& field, std::string_view word, const Tokenizer& tokenizer, int32_t vocab_size,
                        std::vector<std::vector<int32_t>>* words) {
  word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
  if (word.empty()) return InvalidField(field, "has nothing but spaces");
  for (const char* const before : {"", " "}) {
    absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode(before + std::string(word), false);
    if (!ids.ok()) return InvalidField(field, std::string(ids.status().message()));
    if (ids->empty()) return InvalidField(field, "has no token");
    for (const int32_t id : *ids) {
      if (id >= vocab_size)
        return InvalidField(field, absl::StrCat("has token ", id, "; the model's vocabulary has ", vocab_size, " ids"));
    }
    if (words->empty() || words->back() != *ids) words->push_back(*std::move(ids));
  }
  return absl::OkStatus();
}

std::vector<uint32_t> IdsThatContain(const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                                     int32_t vocab_size) {
  std::vector<uint32_t> ids = NoIds(vocab_size);
  for (int32_t id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    const auto contains = [bytes](const std::string& text) { return bytes.find(text) != std::string_view::npos; };
    if (std::any_of(texts.begin(), texts.end(), contains)) AddId(id, &ids);
  }
  return ids;
}

}  // namespace

bool CheckedRules::any() const { return rules.adjusts_logits() || rules.shapes_distribution() || !bad_words.empty(); }

absl::StatusOr<CheckedRules> CheckSamplingRules(const RulesRequest& in, int32_t vocab_size,
                                                const std::optional<float>& repetition_penalty) {
  CheckedRules out;
  QUIRE_RETURN_IF_ERROR(CheckIds(in, vocab_size, &out.rules));
  QUIRE_RETURN_IF_ERROR(CheckTexts("sampling.bad_words", in.bad_words, kMaxBadWords, kMaxBadWordBytes));
  out.bad_words = in.bad_words;
  QUIRE_RETURN_IF_ERROR(CheckPenalties(in, repetition_penalty, &out.rules));
  QUIRE_RETURN_IF_ERROR(CheckDry(in, &out));
  QUIRE_RETURN_IF_ERROR(CheckFilters(in, &out.rules));
  return out;
}

absl::StatusOr<SamplingRules> ResolveSamplingRules(CheckedRules checked, const Tokenizer& tokenizer,
                                                   int32_t vocab_size) {
  for (size_t i = 0; i < checked.bad_words.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(AddBadWord(absl::StrCat("sampling.bad_words[", i, "]"), checked.bad_words[i], tokenizer,
                                     vocab_size, &checked.rules.bad_words));
  }
  if (!checked.breakers.empty()) {
    checked.rules.dry_breakers = IdsThatContain(checked.breakers, tokenizer, vocab_size);
  }
  return std::move(checked.rules);
}

}  // namespace quire
