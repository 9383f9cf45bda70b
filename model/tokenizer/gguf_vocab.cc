#include "model/tokenizer/gguf_vocab.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/vocabulary.h"

namespace quire {
namespace {

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr GgufPreSpec kPreSpecs[] = {
    {.name = "gpt-2"},
    {.name = "smollm", .single_digits = true},
    {.name = "starcoder", .single_digits = true},
    {.name = "refact", .single_digits = true},
    {.name = "llama-bpe", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "tekken", .pattern = kTekkenPattern, .ignore_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .pattern = kGpt4oPattern},
    {.name = "qwen2", .pattern = kQwen2Pattern, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2Pattern, .nfc = true},
};

// Appends the id that `id_key` holds if `flag_key` says so.
absl::Status AppendIfAsked(const GgufFile& file, std::string_view flag_key, std::string_view id_key, bool if_absent,
                           size_t num_tokens, std::vector<int32_t>* ids) {
  bool asked = if_absent && file.Has(id_key);
  if (file.Has(flag_key)) {
    QUIRE_ASSIGN_OR_RETURN(asked, file.GetBool(flag_key));
  }
  if (!asked) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(id_key));
  if (id < 0 || static_cast<uint64_t>(id) >= num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(id_key), " is ", id, ", which must be in [0, ", num_tokens, ")"));
  }
  ids->push_back(static_cast<int32_t>(id));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufVocab> ReadGgufVocab(const GgufFile& file) {
  GgufVocab vocab;
  QUIRE_ASSIGN_OR_RETURN(vocab.texts, file.GetStringArray("tokenizer.ggml.tokens"));
  const size_t size = vocab.texts.size();
  if (size >= static_cast<size_t>(Vocabulary::kMaxTokens)) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens has ", size, " elements, at most ",
                                                   Vocabulary::kMaxTokens - 1, " are allowed"));
  }
  vocab.types.assign(size, GgufTokenType::kNormal);
  if (!file.Has("tokenizer.ggml.token_type")) return vocab;
  QUIRE_ASSIGN_OR_RETURN(const auto types, file.GetIntArray("tokenizer.ggml.token_type"));
  if (types.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.token_type has ", types.size(), " elements, tokenizer.ggml.tokens ", size));
  }
  for (size_t i = 0; i < size; ++i) {
    if (types[i] < 1 || types[i] > 6) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.token_type[", i, "] is ", types[i], ", which must be 1 to 6"));
    }
    vocab.types[i] = static_cast<GgufTokenType>(types[i]);
  }
  return vocab;
}

absl::StatusOr<std::vector<double>> ReadGgufScores(const GgufFile& file, size_t num_tokens) {
  QUIRE_ASSIGN_OR_RETURN(auto scores, file.GetFloatArray("tokenizer.ggml.scores"));
  if (scores.size() != num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.scores has ", scores.size(), " elements, tokenizer.ggml.tokens ", num_tokens));
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!std::isfinite(scores[i])) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.scores[", i, "] is not finite"));
    }
  }
  return scores;
}

absl::StatusOr<const GgufPreSpec*> FindGgufPreSpec(const GgufFile& file) {
  if (!file.Has("tokenizer.ggml.pre")) {
    return absl::UnimplementedError("a BPE vocabulary without tokenizer.ggml.pre is not supported");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("tokenizer.ggml.pre"));
  for (const GgufPreSpec& spec : kPreSpecs) {
    if (spec.name == name) return &spec;
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre '", Printable(name), "' is not supported"));
}

absl::StatusOr<bool> GgufAddsSpacePrefix(const GgufFile& file) {
  if (!file.Has("tokenizer.ggml.add_space_prefix")) return true;
  return file.GetBool("tokenizer.ggml.add_space_prefix");
}

absl::StatusOr<GgufAround> ReadGgufAround(const GgufFile& file, bool adds_bos_if_absent, size_t num_tokens) {
  GgufAround around;
  QUIRE_RETURN_IF_ERROR(AppendIfAsked(file, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id",
                                      adds_bos_if_absent, num_tokens, &around.prefix));
  QUIRE_RETURN_IF_ERROR(AppendIfAsked(file, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id",
                                      /*if_absent=*/false, num_tokens, &around.suffix));
  return around;
}

}  // namespace quire
