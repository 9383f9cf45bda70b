#include "model/tokenizer/export_config.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/gguf.h"
#include "model/tokenizer/gguf_vocab.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr uintmax_t kMaxConfigBytes = 16 << 20;

Json Minimal() { return {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}}; }

absl::StatusOr<Json> ConfigOfGguf(const GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(const GgufVocab vocab, ReadGgufVocab(file));
  Json config = Minimal();
  static constexpr std::pair<const char*, const char*> kTokens[] = {{"bos_token", "bos_token_id"},
                                                                    {"eos_token", "eos_token_id"},
                                                                    {"unk_token", "unknown_token_id"},
                                                                    {"pad_token", "padding_token_id"}};
  for (const auto& [name, suffix] : kTokens) {
    const std::string key = absl::StrCat("tokenizer.ggml.", suffix);
    if (!file.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(key));
    if (id < 0 || id >= static_cast<int64_t>(vocab.texts.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": ", id, " is out of range; there are ", vocab.texts.size(), " tokens"));
    }
    config[name] = std::string(vocab.texts[id]);
  }
  for (const char* const name : {"add_bos_token", "add_eos_token"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name);
    if (!file.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const bool value, file.GetBool(key));
    config[name] = value;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view architecture, file.GetString("general.architecture"));
  if (const std::string key = absl::StrCat(std::string(architecture), ".context_length"); file.Has(key)) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t length, file.GetInt(key));
    config["model_max_length"] = length;
  }
  if (file.Has("tokenizer.chat_template")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view chat_template, file.GetString("tokenizer.chat_template"));
    config["chat_template"] = std::string(chat_template);
  }
  return config;
}

}  // namespace

absl::StatusOr<std::string> ExportTokenizerConfig(const std::string& path) {
  if (path.ends_with(".gguf")) {
    QUIRE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    QUIRE_ASSIGN_OR_RETURN(const Json config, ConfigOfGguf(*file));
    return config.dump(/*indent=*/1) + "\n";
  }
  std::error_code error;
  const std::filesystem::path given(path);
  const std::filesystem::path folder = std::filesystem::is_directory(given, error) ? given : given.parent_path();
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(config, error)) return Minimal().dump(/*indent=*/1) + "\n";
  if (const uintmax_t size = std::filesystem::file_size(config, error); error || size > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.string(), ": cannot be read, or has more than ", kMaxConfigBytes, " bytes"));
  }
  std::ifstream in(config, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false).is_object())
    return absl::InvalidArgumentError(absl::StrCat(config.string(), ": is not a JSON object"));
  return text;
}

}  // namespace quire
