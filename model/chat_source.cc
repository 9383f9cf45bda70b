#include "model/chat_source.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/gguf.h"
#include "model/json.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uintmax_t kMaxTemplateBytes = 4 << 20;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Json Named(const char* name, std::string text) {
  Json entry = Json::object();
  entry["name"] = name;
  entry["template"] = std::move(text);
  return entry;
}

absl::Status ReadFolderTemplates(const fs::path& folder, ChatTemplateSource* source) {
  const fs::path main = folder / "chat_template.jinja", json = folder / "chat_template.json";
  const fs::path tool_use = folder / "additional_chat_templates" / "tool_use.jinja";
  if (Exists(main)) {
    QUIRE_ASSIGN_OR_RETURN(source->text, ReadChatTemplateFile(main.string()));
    if (!Exists(tool_use)) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadChatTemplateFile(tool_use.string()));
    if (!source->tokenizer_config.is_object()) source->tokenizer_config = Json::object();
    source->tokenizer_config["chat_template"] =
        Json::array({Named("default", *std::exchange(source->text, std::nullopt)), Named("tool_use", std::move(text))});
    return absl::OkStatus();
  }
  if (!Exists(json)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonObject(json.string()));
  QUIRE_ASSIGN_OR_RETURN(source->text, JsonFields(object, json.string()).String("chat_template"));
  return absl::OkStatus();
}

absl::StatusOr<ChatTemplateSource> ReadFolder(const fs::path& folder) {
  ChatTemplateSource source;
  if (const fs::path config = folder / "tokenizer_config.json"; Exists(config)) {
    QUIRE_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonObject(config.string()));
    source.tokenizer_config = Json(object);
  }
  QUIRE_RETURN_IF_ERROR(ReadFolderTemplates(folder, &source));
  return source;
}

absl::StatusOr<ChatTemplateSource> ReadGguf(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  constexpr char kMain[] = "tokenizer.chat_template", kToolUse[] = "tokenizer.chat_template.tool_use";
  ChatTemplateSource source;
  if (file->Has(kMain)) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view text, file->GetString(kMain));
    source.text = std::string(text);
    if (file->Has(kToolUse)) {
      QUIRE_ASSIGN_OR_RETURN(const std::string_view tool_use, file->GetString(kToolUse));
      source.tokenizer_config = Json::object();
      source.tokenizer_config["chat_template"] = Json::array(
          {Named("default", *std::exchange(source.text, std::nullopt)), Named("tool_use", std::string(tool_use))});
    }
  }
  if (!file->Has("tokenizer.ggml.tokens")) return source;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, file->GetStringArray("tokenizer.ggml.tokens"));
  static constexpr std::pair<const char*, const char*> kNames[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                                                   {"eos_token", "tokenizer.ggml.eos_token_id"},
                                                                   {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                                                   {"sep_token", "tokenizer.ggml.seperator_token_id"},
                                                                   {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [name, key] : kNames) {
    if (!file->Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const int64_t id, file->GetInt(key));
    // Some files say -1 or one more than there is for a token that the model has not.
    if (id >= 0 && id < static_cast<int64_t>(tokens.size())) source.special_tokens.emplace_back(name, tokens[id]);
  }
  return source;
}

}  // namespace

absl::StatusOr<ChatTemplateSource> ReadChatTemplateSource(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) return ReadGguf(path);
  std::error_code error;
  if (fs::is_directory(path, error)) return ReadFolder(path);
  return ReadFolder(fs::path(path).parent_path());
}

absl::StatusOr<std::string> ReadChatTemplateFile(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", error.message()));
  if (size > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", size, " bytes; a chat template has at most ", kMaxTemplateBytes));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size)))
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  return text;
}

bool HasChatTemplate(const ChatTemplateSource& source) {
  if (source.text.has_value()) return true;
  const Json& config = source.tokenizer_config;
  return config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null();
}

}  // namespace quire
