#include "model/tokenizer/tokenizer.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <istream>
#include <limits>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/chat/chat_template.h"
#include "model/chat_source.h"
#include "model/tokenizer/export_config.h"
#include "server/cli/commands.h"
#include "server/cli/format.h"

namespace quire::cli {
namespace {

Json ErrorJson(const absl::Status& status) {
  return {{"error", {{"code", absl::StatusCodeToString(status.code())}, {"message", std::string(status.message())}}}};
}

// An optional boolean member of a request line.
absl::StatusOr<bool> GetBool(const Json& request, const char* key, bool unset) {
  const auto member = request.find(key);
  if (member == request.end() || member->is_null()) return unset;
  if (!member->is_boolean()) return absl::InvalidArgumentError(std::string(key) + ": must be true or false");
  return member->get<bool>();
}

absl::StatusOr<Json> EncodeLine(const Tokenizer& tokenizer, const Json& request) {
  const auto text = request.find("text");
  if (text == request.end() || !text->is_string()) return absl::InvalidArgumentError("text: must be a string");
  const auto add_special_tokens = GetBool(request, "add_special_tokens", true);
  if (!add_special_tokens.ok()) return add_special_tokens.status();
  auto ids = tokenizer.Encode(text->get_ref<const std::string&>(), *add_special_tokens);
  if (!ids.ok()) return ids.status();
  return Json{{"ids", *std::move(ids)}};
}

absl::StatusOr<Json> DecodeLine(const Tokenizer& tokenizer, const Json& request) {
  const auto list = request.find("ids");
  if (list == request.end() || !list->is_array()) return absl::InvalidArgumentError("ids: must be an array");
  std::vector<int32_t> ids;
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError("ids: " + id.dump() + " is no token id");
    }
    ids.push_back(id.get<int32_t>());
  }
  const auto skip_special_tokens = GetBool(request, "skip_special_tokens", true);
  if (!skip_special_tokens.ok()) return skip_special_tokens.status();
  return Json{{"text", tokenizer.Decode(ids, *skip_special_tokens)}};
}

// {"context": {messages, ...}} by the model's template, or {"template", "context"} with these names alone. Both take
// "now" (2025-06-15T12:30:00; else it is now) and "continue_final_message".
absl::StatusOr<Json> RenderLine(const absl::StatusOr<ChatTemplate>& form, const Json& request) {
  const auto context = request.find("context");
  if (context == request.end() || !context->is_object())
    return absl::InvalidArgumentError("context: must be an object");
  const auto text = request.find("template");
  const bool has_template = text != request.end() && !text->is_null();
  if (has_template && !text->is_string()) return absl::InvalidArgumentError("template: must be a string");
  absl::CivilSecond now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
  if (const auto clock = request.find("now"); clock != request.end()) {
    if (!clock->is_string() || !absl::ParseCivilTime(clock->get_ref<const std::string&>(), &now))
      return absl::InvalidArgumentError("now: must be a time such as 2025-06-15T12:30:00");
  }
  const auto continues = GetBool(request, "continue_final_message", false);
  if (!continues.ok()) return continues.status();
  if (has_template && !*continues) {
    const auto compiled = jinja::Template::Compile(text->get_ref<const std::string&>());
    if (!compiled.ok()) return compiled.status();
    auto rendered = compiled->Render(*context, now);
    if (!rendered.ok()) return rendered.status();
    return Json{{"rendered", *std::move(rendered)}};
  }
  ChatRequest chat;
  chat.kwargs = *context;
  const auto take = [&chat](const char* name, Json* out) {
    if (chat.kwargs.contains(name)) *out = chat.kwargs[name];
    chat.kwargs.erase(name);
  };
  take("messages", &chat.messages);
  take("tools", &chat.tools);
  take("documents", &chat.documents);
  const auto add_generation_prompt = GetBool(*context, "add_generation_prompt", false);
  if (!add_generation_prompt.ok()) return add_generation_prompt.status();
  chat.kwargs.erase("add_generation_prompt");
  chat.add_generation_prompt = *add_generation_prompt;
  chat.continue_final_message = *continues;
  chat.now = now;
  ChatTemplateSource source;
  if (has_template) source.text = text->get<std::string>();
  const absl::StatusOr<ChatTemplate> given = has_template ? ChatTemplate::Load(source) : form;
  if (!given.ok()) return given.status();
  auto rendered = given->Render(chat);
  if (!rendered.ok()) return rendered.status();
  return Json{{"rendered", *std::move(rendered)}};
}

// Answers each line of standard input by a line of standard output, flushed so that a script can hold a dialogue.
int RunLines(Session& session, const std::function<absl::StatusOr<Json>(const Json&)>& answer) {
  std::string line;
  while (std::getline(session.in, line)) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const Json request = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
    absl::StatusOr<Json> result = absl::InvalidArgumentError("the line is not a JSON object");
    if (request.is_object()) result = answer(request);
    session.out << JsonLine(result.ok() ? *result : ErrorJson(result.status())) << std::flush;
  }
  return kExitOk;
}

// Creates a file; one that is there stays. True if all was written.
bool WriteNew(const std::filesystem::path& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "wx");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return (std::fclose(file) == 0) && written;
}

int RunLines(const TokenizerOptions& options, Session& session,
             absl::StatusOr<Json> (*answer)(const Tokenizer&, const Json&)) {
  const auto tokenizer = LoadTokenizer(options.path);
  if (!tokenizer.ok()) return ReportError(session, tokenizer.status().message(), kExitBadModel);
  return RunLines(session, [&](const Json& request) { return answer(**tokenizer, request); });
}

}  // namespace

int RunTokenizerEncode(const TokenizerOptions& options, Session& session) {
  return RunLines(options, session, EncodeLine);
}

int RunTokenizerDecode(const TokenizerOptions& options, Session& session) {
  return RunLines(options, session, DecodeLine);
}

int RunTokenizerExport(const TokenizerOptions& options, Session& session) {
  const auto tokenizer = ExportTokenizerJson(options.path);
  if (!tokenizer.ok()) return ReportError(session, tokenizer.status().message(), kExitBadModel);
  const auto config = ExportTokenizerConfig(options.path);
  if (!config.ok()) return ReportError(session, config.status().message(), kExitBadModel);
  const std::filesystem::path folder(options.folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, text] : {std::pair("tokenizer.json", &*tokenizer), {"tokenizer_config.json", &*config}}) {
    const std::filesystem::path path = folder / name;
    if (WriteNew(path, *text)) {
      session.out << path.string() << '\n';
    } else {
      return ReportError(session, absl::StrCat(path.string(), ": is there already or cannot be written"), kExitFailed);
    }
  }
  return kExitOk;
}

int RunTokenizerRender(const TokenizerOptions& options, Session& session) {
  absl::StatusOr<ChatTemplate> form = absl::NotFoundError("template: is missing, and there is no --tokenizer");
  if (!options.path.empty()) {
    const auto source = ReadChatTemplateSource(options.path);
    if (!source.ok()) return ReportError(session, source.status().message(), kExitBadModel);
    form = ChatTemplate::Load(*source);
  }
  return RunLines(session, [&](const Json& request) { return RenderLine(form, request); });
}

}  // namespace quire::cli
