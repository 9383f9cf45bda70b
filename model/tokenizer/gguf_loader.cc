#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/loaders.h"

namespace quire {
namespace {

// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a value of tokenizer.ggml.pre stands for.
struct PreSpec {
  std::string_view name;
  std::string_view pattern = "";  // empty: GPT-2's own
  bool single_digits = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
};

constexpr PreSpec kPreSpecs[] = {
    {.name = "gpt-2"},
    {.name = "smollm", .single_digits = true},
    {.name = "starcoder", .single_digits = true},
    {.name = "refact", .single_digits = true},
    {.name = "llama-bpe", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true},
    {.name = "qwen2", .pattern = kQwen2Pattern, .nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2Pattern, .nfc = true},
};

absl::StatusOr<const PreSpec*> FindPreSpec(const GgufFile& file) {
  if (!file.Has("tokenizer.ggml.pre")) {
    return absl::UnimplementedError("a BPE vocabulary without tokenizer.ggml.pre is not supported");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("tokenizer.ggml.pre"));
  for (const PreSpec& spec : kPreSpecs) {
    if (spec.name == name) return &spec;
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre '", Printable(name), "' is not supported"));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const PreSpec& spec) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  if (spec.single_digits) {
    QUIRE_ASSIGN_OR_RETURN(auto digits, MakeDigits(/*individual_digits=*/true));
    parts.push_back(std::move(digits));
  }
  if (!spec.pattern.empty()) {
    QUIRE_ASSIGN_OR_RETURN(auto split,
                           MakeSplit(spec.pattern, SplitPreTokenizer::Behavior::kIsolated, /*invert=*/false));
    parts.push_back(std::move(split));
  }
  QUIRE_ASSIGN_OR_RETURN(auto byte_level, ByteLevelPreTokenizer::Create(/*add_prefix_space=*/false,
                                                                        /*use_regex=*/spec.pattern.empty()));
  parts.push_back(std::move(byte_level));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

absl::Status AddTokens(const GgufFile& file, BpePipeline* pipeline, std::vector<Vocabulary::Token>* tokens) {
  QUIRE_ASSIGN_OR_RETURN(const auto texts, file.GetStringArray("tokenizer.ggml.tokens"));
  std::vector<int64_t> types(texts.size(), kNormal);
  if (file.Has("tokenizer.ggml.token_type")) {
    QUIRE_ASSIGN_OR_RETURN(types, file.GetIntArray("tokenizer.ggml.token_type"));
  }
  if (types.size() != texts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type has ", types.size(),
                                                   " elements, tokenizer.ggml.tokens ", texts.size()));
  }
  if (texts.size() >= static_cast<size_t>(Vocabulary::kMaxTokens)) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens has ", texts.size(), " elements, at most ",
                                                   Vocabulary::kMaxTokens - 1, " are allowed"));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (types[i] < kNormal || types[i] > kByte) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.token_type[", i, "] is ", types[i], ", which must be 1 to 6"));
    }
    const bool special = types[i] == kControl;
    if (special || types[i] == kUserDefined) {
      pipeline->added_tokens.push_back({.id = id, .content = std::string(texts[i]), .special = special});
    }
    pipeline->model->AddToken(texts[i], id);
    tokens->push_back({id, std::string(texts[i]), byte_level::BytesOf(texts[i]), special});
  }
  return absl::OkStatus();
}

absl::Status AddMerges(const GgufFile& file, Bpe* bpe) {
  QUIRE_ASSIGN_OR_RETURN(const auto merges, file.GetStringArray("tokenizer.ggml.merges"));
  for (const std::string_view merge : merges) QUIRE_RETURN_IF_ERROR(bpe->AddMerge(merge));
  return absl::OkStatus();
}

// Appends the id that `id_key` holds if `flag_key` says so.
absl::Status AppendIfAsked(const GgufFile& file, std::string_view flag_key, std::string_view id_key, bool if_absent,
                           const Vocabulary& vocabulary, std::vector<int32_t>* ids) {
  bool asked = if_absent && file.Has(id_key);
  if (file.Has(flag_key)) {
    QUIRE_ASSIGN_OR_RETURN(asked, file.GetBool(flag_key));
  }
  if (!asked) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(id_key));
  if (id < 0 || id >= vocabulary.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(id_key), " is ", id, ", which must be in [0, ", vocabulary.size(), ")"));
  }
  ids->push_back(static_cast<int32_t>(id));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerGguf(const GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model '", Printable(model), "' is not supported"));
  }
  QUIRE_ASSIGN_OR_RETURN(const PreSpec* spec, FindPreSpec(file));
  BpePipeline pipeline;
  Bpe::Options options;
  options.ignore_merges = spec->ignore_merges;
  pipeline.model.emplace(std::move(options));
  if (spec->nfc) pipeline.normalizer = std::make_unique<NfcNormalizer>();
  QUIRE_ASSIGN_OR_RETURN(pipeline.pre_tokenizer, MakePreTokenizer(*spec));
  std::vector<Vocabulary::Token> tokens;
  QUIRE_RETURN_IF_ERROR(AddTokens(file, &pipeline, &tokens));
  QUIRE_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(std::move(tokens)));
  QUIRE_RETURN_IF_ERROR(AddMerges(file, &*pipeline.model));
  QUIRE_RETURN_IF_ERROR(pipeline.model->Finish());
  QUIRE_RETURN_IF_ERROR(AppendIfAsked(file, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id",
                                      spec->adds_bos, vocabulary, &pipeline.prefix));
  QUIRE_RETURN_IF_ERROR(AppendIfAsked(file, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id",
                                      /*if_absent=*/false, vocabulary, &pipeline.suffix));
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(pipeline));
}

}  // namespace quire
