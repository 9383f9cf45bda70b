#include "server/cli/session.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <istream>
#include <iterator>
#include <ostream>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace quire::cli {
namespace {

constexpr char kDetailsUrl[] = "quire.cli/details";

absl::Status CheckUtf8(const std::string& what, const std::string& text) {
  const size_t valid = utf8::ValidPrefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is not valid UTF-8: byte ", valid, " of ", text.size()));
}

}  // namespace

int ReportFailure(Session& session, const absl::Status& status) {
  session.err << "quire: " << absl::StatusCodeToString(status.code()) << ": " << status.message() << "\n";
  const std::string details = Details(status);
  for (absl::string_view line : absl::StrSplit(details, '\n', absl::SkipEmpty())) {
    session.err << "  " << line << "\n";
  }
  session.err.flush();
  return kExitFailed;
}

int ReportError(Session& session, absl::string_view message, ExitCode code) {
  session.err << "quire: " << message << "\n" << std::flush;
  return code;
}

void SetDetails(absl::Status& status, const std::string& details) {
  status.SetPayload(kDetailsUrl, absl::Cord(details));
}

std::string Details(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailsUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::StatusOr<std::string> TextArgument(const std::string& argument, Session& session) {
  std::string text = argument;
  if (argument == "-") text.assign(std::istreambuf_iterator<char>(session.in), std::istreambuf_iterator<char>());
  QUIRE_RETURN_IF_ERROR(CheckUtf8("the text", text));
  return text;
}

absl::StatusOr<std::string> FileArgument(const std::string& path, Session& session) {
  if (path == "-") return TextArgument(path, session);
  std::string text;
  FILE* const file = std::fopen(path.c_str(), "rb");
  bool is_read = file != nullptr;
  if (is_read) {
    char part[1 << 16];
    for (size_t count; (count = std::fread(part, 1, sizeof(part), file)) > 0;) text.append(part, count);
    is_read = std::ferror(file) == 0;
  }
  const int problem = errno;
  if (file != nullptr) std::fclose(file);
  if (!is_read) return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(problem)));
  QUIRE_RETURN_IF_ERROR(CheckUtf8(path, text));
  return text;
}

}  // namespace quire::cli
