// A GGUF file's tokenizer as the tokenizer.json that it came from, or one with the same ids.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"
#include "model/tokenizer/gguf_vocab.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/score_merges.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

Json AddedTokens(const GgufVocab& vocab) {
  Json added = Json::array();
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    const bool special = IsSpecial(vocab.types[i]);
    if (!special && vocab.types[i] != GgufTokenType::kUserDefined) continue;
    added.push_back({{"id", i},
                     {"content", std::string(vocab.texts[i])},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json Sequence(const char* key, Json parts) {
  Json sequence = {{"type", "Sequence"}};
  sequence[key] = std::move(parts);
  return sequence;
}

Json PreTokenizerOf(const GgufPreSpec& spec) {
  Json parts = Json::array();
  if (spec.single_digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!spec.pattern.empty()) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(spec.pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back(ByteLevel(/*use_regex=*/spec.pattern.empty()));
  return Sequence("pretokenizers", std::move(parts));
}

// Null if nothing is put around a text.
Json PostProcessorOf(const GgufAround& around, const GgufVocab& vocab) {
  if (around.prefix.empty() && around.suffix.empty()) return nullptr;
  Json special_tokens = Json::object();
  const auto parts = [&](const std::vector<int32_t>& ids, int type_id) {
    Json list = Json::array();
    for (const int32_t id : ids) {
      const std::string text(vocab.texts[id]);
      special_tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
      list.push_back({{"SpecialToken", {{"id", text}, {"type_id", type_id}}}});
    }
    return list;
  };
  const auto around_text = [&](const char* name, int type_id) {
    Json list = parts(around.prefix, type_id);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type_id}}}});
    for (Json& part : parts(around.suffix, type_id)) list.push_back(std::move(part));
    return list;
  };
  const Json single = around_text("A", 0);
  Json pair = single;
  for (Json& part : around_text("B", 1)) pair.push_back(std::move(part));
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special_tokens}};
}

Json ModelOf(const GgufVocab& vocab) {
  Json tokens = Json::object();
  auto& list = tokens.get_ref<Json::object_t&>();  // push_back: operator[] would look each key up in all before it
  list.reserve(vocab.texts.size());
  for (size_t i = 0; i < vocab.texts.size(); ++i) list.push_back({std::string(vocab.texts[i]), i});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(tokens)}};
}

absl::StatusOr<Json> ByteLevelJson(const GgufFile& file, const GgufVocab& vocab) {
  QUIRE_ASSIGN_OR_RETURN(const GgufPreSpec* spec, FindGgufPreSpec(file));
  QUIRE_ASSIGN_OR_RETURN(const GgufAround around, ReadGgufAround(file, spec->adds_bos, vocab.texts.size()));
  QUIRE_ASSIGN_OR_RETURN(const auto merges, file.GetStringArray("tokenizer.ggml.merges"));
  Json model = ModelOf(vocab);
  model["ignore_merges"] = spec->ignore_merges;
  Json& list = model["merges"] = Json::array();
  for (const std::string_view merge : merges) list.push_back(std::string(merge));
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", AddedTokens(vocab)},
              {"normalizer", spec->nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
              {"pre_tokenizer", PreTokenizerOf(*spec)},
              {"post_processor", PostProcessorOf(around, vocab)},
              {"decoder", ByteLevel(/*use_regex=*/true)},
              {"model", std::move(model)}};
}

absl::StatusOr<Json> ScoredJson(const GgufFile& file, const GgufVocab& vocab) {
  const std::string mark(kWordMark);
  QUIRE_ASSIGN_OR_RETURN(const std::vector<double> scores, ReadGgufScores(file, vocab.texts.size()));
  QUIRE_ASSIGN_OR_RETURN(const bool space_prefix, GgufAddsSpacePrefix(file));
  QUIRE_ASSIGN_OR_RETURN(const GgufAround around,
                         ReadGgufAround(file, /*adds_bos_if_absent=*/true, vocab.texts.size()));
  const auto replace = [](const std::string& from, const std::string& to) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  Json normalizers = Json::array();
  if (space_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", mark}});
  normalizers.push_back(replace(" ", mark));
  Json decoders = Json::array({replace(mark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  if (space_prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Json model = ModelOf(vocab);
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    if (vocab.types[i] == GgufTokenType::kUnknown) model["unk_token"] = std::string(vocab.texts[i]);
  }
  Json& list = model["merges"] = Json::array();
  for (const auto& [left, right] : ListMergesByScore(vocab.texts, scores)) {
    list.push_back(Json::array({std::string(left), std::string(right)}));
  }
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", AddedTokens(vocab)},
              {"normalizer", Sequence("normalizers", std::move(normalizers))},
              {"pre_tokenizer", nullptr},
              {"post_processor", PostProcessorOf(around, vocab)},
              {"decoder", Sequence("decoders", std::move(decoders))},
              {"model", std::move(model)}};
}

}  // namespace

absl::StatusOr<std::string> TokenizerJsonOfGguf(const GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model '", Printable(model), "' is not supported"));
  }
  QUIRE_ASSIGN_OR_RETURN(const GgufVocab vocab, ReadGgufVocab(file));
  QUIRE_ASSIGN_OR_RETURN(const Json json, model == "gpt2" ? ByteLevelJson(file, vocab) : ScoredJson(file, vocab));
  return json.dump(/*indent=*/1) + "\n";
}

}  // namespace quire
