#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/json_components.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/loaders.h"

namespace quire {
namespace {

using json_fields::Find;
using nlohmann::json;

absl::Status CheckModelType(const json& model) {
  QUIRE_ASSIGN_OR_RETURN(const std::string type, json_fields::String(model, "model", "type", "BPE"));
  if (type != "BPE")
    return absl::UnimplementedError(absl::StrCat("model of type ", Printable(type), " is not supported"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    QUIRE_ASSIGN_OR_RETURN(const std::string value, json_fields::String(model, "model", key, ""));
    if (!value.empty())
      return absl::UnimplementedError(absl::StrCat("model.", key, " '", Printable(value), "' is not supported"));
  }
  const json* dropout = Find(model, "dropout");
  if (dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0)) {
    return absl::UnimplementedError("model.dropout is not supported");
  }
  return absl::OkStatus();
}

absl::Status AddVocabulary(const json& vocab, Bpe* bpe, std::vector<Vocabulary::Token>* tokens) {
  tokens->reserve(vocab.size());
  for (const auto& [text, value] : vocab.items()) {
    if (!value.is_number_integer()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: id of token '", Printable(text), "' must be an integer"));
    }
    const bool huge = value.is_number_unsigned() && value.get<uint64_t>() >= Vocabulary::kMaxTokens;
    const int64_t id = huge ? Vocabulary::kMaxTokens : value.get<int64_t>();
    QUIRE_RETURN_IF_ERROR(Vocabulary::CheckId(id, text));
    bpe->AddToken(text, static_cast<int32_t>(id));
    tokens->push_back({.id = static_cast<int32_t>(id), .text = text});
  }
  return absl::OkStatus();
}

// A merge is a pair, or in older files the two with a space between.
absl::Status AddMerges(const json& merges, Bpe* bpe) {
  for (const json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      QUIRE_RETURN_IF_ERROR(
          bpe->AddMerge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()));
      continue;
    }
    if (!merge.is_string()) {
      return absl::InvalidArgumentError("model.merges must hold pairs of strings, or strings");
    }
    const std::string& line = merge.get_ref<const std::string&>();
    if (!line.starts_with("#version")) QUIRE_RETURN_IF_ERROR(bpe->AddMerge(line));
  }
  return absl::OkStatus();
}

// The pre-tokenizer must be there already: if the model can work on bytes, it no longer spells them.
absl::Status MakeModel(const json& model, BpePipeline* pipeline, std::vector<Vocabulary::Token>* tokens) {
  QUIRE_RETURN_IF_ERROR(CheckModelType(model));
  Bpe::Options options;
  QUIRE_ASSIGN_OR_RETURN(options.ignore_merges, json_fields::Bool(model, "model", "ignore_merges", false));
  QUIRE_ASSIGN_OR_RETURN(options.byte_fallback, json_fields::Bool(model, "model", "byte_fallback", false));
  QUIRE_ASSIGN_OR_RETURN(options.fuse_unk, json_fields::Bool(model, "model", "fuse_unk", false));
  QUIRE_ASSIGN_OR_RETURN(options.unk_token, json_fields::String(model, "model", "unk_token", ""));
  QUIRE_ASSIGN_OR_RETURN(const json* vocab, json_fields::Object(model, "model", "vocab"));
  QUIRE_ASSIGN_OR_RETURN(const json* merges, json_fields::Array(model, "model", "merges"));
  options.bytes = !options.byte_fallback && options.unk_token.empty() && pipeline->pre_tokenizer != nullptr &&
                  pipeline->pre_tokenizer->LeaveBytes();
  pipeline->model_is_byte_level = options.bytes;
  Bpe& bpe = pipeline->model.emplace(std::move(options));
  bpe.Reserve(vocab->size(), merges->size());
  QUIRE_RETURN_IF_ERROR(AddVocabulary(*vocab, &bpe, tokens));
  return AddMerges(*merges, &bpe);
}

absl::StatusOr<AddedToken> ParseAddedToken(const json& spec, const std::string& where) {
  AddedToken token;
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, json_fields::Int(spec, where, "id"));
  QUIRE_ASSIGN_OR_RETURN(token.content, json_fields::String(spec, where, "content"));
  QUIRE_RETURN_IF_ERROR(Vocabulary::CheckId(id, token.content));
  token.id = static_cast<int32_t>(id);
  QUIRE_ASSIGN_OR_RETURN(token.special, json_fields::Bool(spec, where, "special", false));
  QUIRE_ASSIGN_OR_RETURN(token.normalized, json_fields::Bool(spec, where, "normalized", !token.special));
  QUIRE_ASSIGN_OR_RETURN(token.single_word, json_fields::Bool(spec, where, "single_word", false));
  QUIRE_ASSIGN_OR_RETURN(token.lstrip, json_fields::Bool(spec, where, "lstrip", false));
  QUIRE_ASSIGN_OR_RETURN(token.rstrip, json_fields::Bool(spec, where, "rstrip", false));
  return token;
}

// Adds to `tokens` those that the model does not have, and marks the special ones.
absl::Status MergeAddedTokens(const std::vector<AddedToken>& added, const Bpe& bpe,
                              std::vector<Vocabulary::Token>* tokens) {
  absl::flat_hash_map<std::string_view, const AddedToken*> seen;
  for (const AddedToken& token : added) {
    const auto [at, fresh] = seen.emplace(token.content, &token);
    const int32_t known = fresh ? bpe.IdOf(token.content) : at->second->id;
    if (known >= 0 && known != token.id) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token '", Printable(token.content), "' has the two ids ", known, " and ", token.id));
    }
    if (known < 0) tokens->push_back({.id = token.id, .text = token.content, .special = token.special});
  }
  for (Vocabulary::Token& token : *tokens) {
    const auto at = seen.find(token.text);
    if (at != seen.end() && at->second->special) token.special = true;
  }
  return absl::OkStatus();
}

absl::Status CheckIds(const std::vector<int32_t>& ids, const std::vector<Vocabulary::Token>& tokens) {
  for (const int32_t id : ids) {
    if (std::none_of(tokens.begin(), tokens.end(), [id](const Vocabulary::Token& token) { return token.id == id; })) {
      return absl::InvalidArgumentError(absl::StrCat("post_processor: there is no token with id ", id));
    }
  }
  return absl::OkStatus();
}

absl::Status MakeStages(const json& file, BpePipeline* pipeline) {
  if (const json* spec = Find(file, "normalizer"); spec != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(pipeline->normalizer, MakeNormalizer(*spec, "normalizer"));
  }
  if (const json* spec = Find(file, "pre_tokenizer"); spec != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(pipeline->pre_tokenizer, MakePreTokenizer(*spec, "pre_tokenizer"));
  }
  if (const json* spec = Find(file, "post_processor"); spec != nullptr) {
    QUIRE_RETURN_IF_ERROR(ApplyPostProcessor(*spec, "post_processor", &pipeline->post));
  }
  const json* decoder = Find(file, "decoder");
  if (decoder == nullptr) return absl::UnimplementedError("a tokenizer without a decoder is not supported");
  QUIRE_ASSIGN_OR_RETURN(pipeline->decoder, MakeDecoder(*decoder, "decoder"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json file, json_fields::Parse(text));
  if (!file.is_object()) return absl::InvalidArgumentError("not a JSON object");
  QUIRE_ASSIGN_OR_RETURN(const json* model, json_fields::Object(file, "", "model"));
  BpePipeline pipeline;
  QUIRE_RETURN_IF_ERROR(MakeStages(file, &pipeline));
  std::vector<Vocabulary::Token> tokens;
  QUIRE_RETURN_IF_ERROR(MakeModel(*model, &pipeline, &tokens));
  if (Find(file, "added_tokens") != nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const json* added, json_fields::Array(file, "", "added_tokens"));
    for (size_t i = 0; i < added->size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken((*added)[i], absl::StrCat("added_tokens[", i, "]")));
      pipeline.added_tokens.push_back(std::move(token));
    }
  }
  QUIRE_RETURN_IF_ERROR(MergeAddedTokens(pipeline.added_tokens, *pipeline.model, &tokens));
  QUIRE_RETURN_IF_ERROR(pipeline.model->Finish());
  QUIRE_RETURN_IF_ERROR(CheckIds(pipeline.post.prefix, tokens));
  QUIRE_RETURN_IF_ERROR(CheckIds(pipeline.post.suffix, tokens));
  return BpeTokenizer::Create(std::move(tokens), std::move(pipeline));
}

}  // namespace quire
