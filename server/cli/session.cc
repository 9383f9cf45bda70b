#include "server/cli/session.h"

#include <istream>
#include <iterator>
#include <ostream>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "model/tokenizer/utf8.h"

namespace quire::cli {
namespace {

constexpr char kDetailsUrl[] = "quire.cli/details";

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
  const size_t valid = utf8::ValidPrefix(text);
  if (valid == text.size()) return text;
  return absl::InvalidArgumentError(absl::StrCat("the text is not valid UTF-8: byte ", valid, " of ", text.size()));
}

}  // namespace quire::cli
