#pragma once

#include <iosfwd>
#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace quire::cli {

// Exit codes of `quire`, as sysexits.h numbers them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // the request failed; health: not serving
  kExitUsage = 64,        // bad command line
  kExitBadModel = 66,     // inspect, tokenizer: the model's files
  kExitNoConnection = 69  // nobody answers at --server
};

// Where a command reads and writes, and what holds for every command. Commands touch no global stream, so tests run
// them in process. Thread rule: one thread.
struct Session {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  // progress bars only there
  bool in_is_terminal = false;   // somebody types there

  std::string server = "127.0.0.1:50051";
  std::string api_key = {};                           // empty: none
  absl::Duration timeout = absl::InfiniteDuration();  // of one RPC
  absl::Duration connect_timeout = absl::Seconds(5);
};

// Prints "quire: CODE: message" and the decoded details of a failed request to session.err; returns kExitFailed.
int ReportFailure(Session& session, const absl::Status& status);

// Prints "quire: message" to session.err; returns `code`.
int ReportError(Session& session, absl::string_view message, ExitCode code);

// Error details of a failed RPC, one finding a line, ready to print. They travel inside the status, which so stays the
// one error type of the tool.
void SetDetails(absl::Status& status, const std::string& details);
std::string Details(const absl::Status& status);

// The text that an argument means: "-" is all of session.in. kInvalidArgument naming the first bad byte unless it is
// UTF-8, which a wire string must be.
absl::StatusOr<std::string> TextArgument(const std::string& argument, Session& session);

// The text of the file at `path`, of session.in for "-". Errors name the path and say why: a file that cannot be read
// is kNotFound, text that is not UTF-8 kInvalidArgument.
absl::StatusOr<std::string> FileArgument(const std::string& path, Session& session);

}  // namespace quire::cli
