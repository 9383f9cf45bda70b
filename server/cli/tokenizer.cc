#include "model/tokenizer/tokenizer.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <istream>
#include <limits>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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

// Answers each line of standard input by a line of standard output, flushed so that a script can hold a dialogue.
int RunLines(const TokenizerOptions& options, Session& session,
             absl::StatusOr<Json> (*answer)(const Tokenizer&, const Json&)) {
  const auto tokenizer = LoadTokenizer(options.path);
  if (!tokenizer.ok()) return ReportError(session, tokenizer.status().message(), kExitBadModel);
  std::string line;
  while (std::getline(session.in, line)) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const Json request = Json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
    absl::StatusOr<Json> result = absl::InvalidArgumentError("the line is not a JSON object");
    if (request.is_object()) result = answer(**tokenizer, request);
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

}  // namespace quire::cli
