#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/gguf_vocab.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/score_merges.h"

namespace quire {
namespace {

absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeGgufPreTokenizer(const GgufPreSpec& spec) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  if (spec.single_digits) {
    QUIRE_ASSIGN_OR_RETURN(auto digits, MakeDigits(/*individual_digits=*/true));
    parts.push_back(std::move(digits));
  }
  if (!spec.pattern.empty()) {
    QUIRE_ASSIGN_OR_RETURN(auto split, MakeRegexSplit(spec.pattern, SplitBehavior::kIsolated));
    parts.push_back(std::move(split));
  }
  QUIRE_ASSIGN_OR_RETURN(auto byte_level,
                         MakeByteLevel(/*add_prefix_space=*/false, /*use_regex=*/spec.pattern.empty()));
  parts.push_back(std::move(byte_level));
  return MakeSequence(std::move(parts));
}

void AddTokens(const GgufVocab& vocab, BpePipeline* pipeline, std::vector<Vocabulary::Token>* tokens) {
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string text(vocab.texts[i]);
    const bool special = IsSpecial(vocab.types[i]);
    if (special || vocab.types[i] == GgufTokenType::kUserDefined) {
      pipeline->added_tokens.push_back({.id = id, .content = text, .special = special});
    }
    pipeline->model->AddToken(text, id);
    tokens->push_back({.id = id, .text = text, .special = special});
  }
}

// tokenizer.ggml.model gpt2: byte-level BPE with the file's merges.
absl::Status FillByteLevel(const GgufFile& file, const GgufVocab& vocab, BpePipeline* pipeline,
                           std::vector<Vocabulary::Token>* tokens) {
  QUIRE_ASSIGN_OR_RETURN(const GgufPreSpec* spec, FindGgufPreSpec(file));
  Bpe::Options options;
  options.ignore_merges = spec->ignore_merges;
  options.bytes = true;
  pipeline->model.emplace(std::move(options));
  pipeline->model_is_byte_level = true;
  if (spec->nfc) pipeline->normalizer = std::make_unique<UnicodeNormalizer>(NormalForm::kNfc);
  QUIRE_ASSIGN_OR_RETURN(pipeline->pre_tokenizer, MakeGgufPreTokenizer(*spec));
  pipeline->pre_tokenizer->LeaveBytes();
  QUIRE_RETURN_IF_ERROR(pipeline->decoder.AddByteLevel());
  AddTokens(vocab, pipeline, tokens);
  QUIRE_ASSIGN_OR_RETURN(const auto merges, file.GetStringArray("tokenizer.ggml.merges"));
  for (const std::string_view merge : merges) QUIRE_RETURN_IF_ERROR(pipeline->model->AddMerge(merge));
  QUIRE_ASSIGN_OR_RETURN(GgufAround around, ReadGgufAround(file, spec->adds_bos, vocab.texts.size()));
  pipeline->post = {.prefix = std::move(around.prefix), .suffix = std::move(around.suffix), .trims = {}};
  return absl::OkStatus();
}

// tokenizer.ggml.model llama: SentencePiece's BPE. Two neighbours become the token that they spell together, that of
// the highest score first; characters that are left over become bytes.
absl::Status FillScored(const GgufFile& file, const GgufVocab& vocab, BpePipeline* pipeline,
                        std::vector<Vocabulary::Token>* tokens) {
  const std::string mark(kWordMark);
  QUIRE_ASSIGN_OR_RETURN(const std::vector<double> scores, ReadGgufScores(file, vocab.texts.size()));
  QUIRE_ASSIGN_OR_RETURN(const bool space_prefix, GgufAddsSpacePrefix(file));
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  if (space_prefix) normalizers.push_back(std::make_unique<PrependNormalizer>(mark));
  QUIRE_ASSIGN_OR_RETURN(Pattern space, Pattern::OfLiteral(" "));
  normalizers.push_back(std::make_unique<ReplaceNormalizer>(std::move(space), mark));
  pipeline->normalizer = std::make_unique<SequenceNormalizer>(std::move(normalizers));
  QUIRE_ASSIGN_OR_RETURN(Pattern mark_pattern, Pattern::OfLiteral(mark));
  QUIRE_RETURN_IF_ERROR(pipeline->decoder.AddReplace(std::move(mark_pattern), " "));
  QUIRE_RETURN_IF_ERROR(pipeline->decoder.AddByteFallback());
  QUIRE_RETURN_IF_ERROR(pipeline->decoder.AddFuse());
  QUIRE_RETURN_IF_ERROR(pipeline->decoder.AddStrip(" ", space_prefix ? 1 : 0, 0));
  Bpe::Options options;
  options.byte_fallback = true;
  options.fuse_unk = true;
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    if (vocab.types[i] == GgufTokenType::kUnknown) options.unk_token = vocab.texts[i];
  }
  pipeline->model.emplace(std::move(options));
  AddTokens(vocab, pipeline, tokens);
  AddMergesByScore(vocab.texts, scores, &*pipeline->model);
  QUIRE_ASSIGN_OR_RETURN(GgufAround around, ReadGgufAround(file, /*adds_bos_if_absent=*/true, vocab.texts.size()));
  pipeline->post = {.prefix = std::move(around.prefix), .suffix = std::move(around.suffix), .trims = {}};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerGguf(const GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model '", Printable(model), "' is not supported"));
  }
  QUIRE_ASSIGN_OR_RETURN(const GgufVocab vocab, ReadGgufVocab(file));
  BpePipeline pipeline;
  std::vector<Vocabulary::Token> tokens;
  QUIRE_RETURN_IF_ERROR(model == "gpt2" ? FillByteLevel(file, vocab, &pipeline, &tokens)
                                        : FillScored(file, vocab, &pipeline, &tokens));
  QUIRE_RETURN_IF_ERROR(pipeline.model->Finish());
  return BpeTokenizer::Create(std::move(tokens), std::move(pipeline));
}

}  // namespace quire
