#include <deque>
#include <istream>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"
#include "server/cli/tools.h"

namespace quire::cli {
namespace {

// A conversation with the server: what has been said, and what it took.
class Conversation {
 public:
  Conversation(const ChatOptions& options, const std::vector<v1::Tool>& tools, Client& client, Session& session)
      : options_(options), client_(client), session_(session) {
    *request_.mutable_tools() = {tools.begin(), tools.end()};
    v1::GenerateRequest& request = *request_.mutable_request();
    request.set_model(options.model);
    if (options.max_tokens) request.mutable_stopping()->set_max_tokens(*options.max_tokens);
    for (const std::string& stop : options.stop) request.mutable_stopping()->add_stop(stop);
    if (options.temperature) request.mutable_sampling()->set_temperature(*options.temperature);
    if (options.top_p) request.mutable_sampling()->set_top_p(*options.top_p);
    if (options.seed) request.mutable_sampling()->set_seed(*options.seed);
    Reset();
  }

  // Forgets what has been said, but for the system's words and the tools.
  void Reset() {
    request_.clear_messages();
    waiting_.clear();
    if (options_.system.empty()) return;
    v1::ChatMessage* const message = request_.add_messages();
    message->set_role("system");
    message->set_content(options_.system);
  }

  // Sends what the user says and prints the answer as it comes. What failed or was interrupted is not remembered.
  absl::Status Say(const std::string& text) {
    v1::ChatMessage message;
    message.set_role("user");
    message.set_content(text);
    return Send(std::move(message));
  }

  // Sends what the first call that waits has given, once nothing else waits; else keeps it.
  absl::Status GiveResult(const std::string& text) {
    if (waiting_.empty()) return absl::FailedPreconditionError("no call of a tool waits for its result");
    v1::ChatMessage result;
    result.set_role("tool");
    result.set_content(text);
    result.set_tool_call_id(waiting_.front().id());
    result.set_name(waiting_.front().name());
    if (waiting_.size() == 1) return Send(std::move(result));
    waiting_.pop_front();
    *request_.add_messages() = std::move(result);
    return absl::OkStatus();
  }

  void PrintUsage() const {
    session_.out << "turns " << num_turns_ << ", tokens of the last prompt " << last_.prompt_tokens() << " ("
                 << last_.cached_tokens() << " cached), generated " << num_generated_ << " in all\n"
                 << std::flush;
  }

 private:
  // Sends the conversation with `message` at its end.
  absl::Status Send(v1::ChatMessage message) {
    *request_.add_messages() = std::move(message);
    v1::ChatMessage answer;
    absl::Status status = Ask(&answer);
    if (status.ok()) {
      waiting_.assign(answer.tool_calls().begin(), answer.tool_calls().end());
      *request_.add_messages() = std::move(answer);
    } else {
      request_.mutable_messages()->RemoveLast();
    }
    return status;
  }

  absl::Status Ask(v1::ChatMessage* answer) {
    answer->set_role("assistant");
    absl::Status status;
    absl::Notification done;
    const std::shared_ptr<Call> call = client_.NewChat(
        request_, [&](const v1::GenerateResponse& message) { Print(message, answer); },
        [&](const absl::Status& result) {
          status = result;
          done.Notify();
        });
    {
      InterruptWatch interrupt([&] { call->Cancel(); });
      call->Start();
      done.WaitForNotification();
    }
    if (!options_.json) session_.out << "\n" << std::flush;
    return status;
  }

  void Print(const v1::GenerateResponse& message, v1::ChatMessage* answer) {
    if (options_.json) PrintJson(message);
    for (const v1::SequenceDelta& delta : message.sequences()) {
      if (!options_.json) PrintText(delta, *answer);
      answer->mutable_content()->append(delta.text());
      answer->mutable_reasoning()->append(delta.reasoning());
      answer->mutable_tool_calls()->MergeFrom(delta.tool_calls());
    }
    if (!message.has_usage()) return;
    last_ = message.usage();
    num_generated_ += last_.completion_tokens();
    ++num_turns_;
  }

  // What `delta` adds to the answer so far. A call is a line of its own: -> name({"key": value})
  void PrintText(const v1::SequenceDelta& delta, const v1::ChatMessage& answer) {
    if (options_.show_reasoning) session_.out << delta.reasoning();
    const bool content_begins = answer.content().empty() && !delta.text().empty();
    if (options_.show_reasoning && content_begins && !answer.reasoning().empty()) session_.out << "\n\n";
    session_.out << delta.text();
    bool is_first = answer.content().empty() && delta.text().empty() && answer.tool_calls().empty();
    if (options_.show_reasoning && !(answer.reasoning().empty() && delta.reasoning().empty())) is_first = false;
    for (const v1::ToolCall& call : delta.tool_calls()) {
      session_.out << (is_first ? "" : "\n") << "-> " << call.name() << "(" << call.arguments_json() << ")";
      is_first = false;
    }
    session_.out << std::flush;
  }

  void PrintJson(const v1::GenerateResponse& message) {
    if (message.has_prompt() || message.sequences_size() > 0) session_.out << JsonLine(MessageToJson(message));
    if (message.has_usage()) session_.out << JsonLine(UsageToJson(message));
    session_.out << std::flush;
  }

  const ChatOptions& options_;
  Client& client_;
  Session& session_;
  v1::ChatRequest request_;           // its messages are the conversation
  std::deque<v1::ToolCall> waiting_;  // calls of the last answer that have no result yet
  v1::Usage last_;
  uint64_t num_generated_ = 0;
  int num_turns_ = 0;
};

// A line of the user's, or "/result TEXT".
absl::Status Say(Conversation& conversation, absl::string_view line) {
  if (line == "/result" || absl::ConsumePrefix(&line, "/result ")) {
    return conversation.GiveResult(line == "/result" ? "" : std::string(absl::StripAsciiWhitespace(line)));
  }
  return conversation.Say(std::string(line));
}

// Lines that are turns, or commands that begin with a slash. The status of the last turn that failed.
absl::Status RunDialogue(Conversation& conversation, Session& session) {
  absl::Status failed;
  const auto prompt = [&session] {
    if (session.in_is_terminal) session.out << "> " << std::flush;
  };
  if (session.in_is_terminal) {
    session.out << "/reset forgets the conversation, /usage counts tokens, /result TEXT is what a called tool gives, "
                   "/exit ends\n";
  }
  prompt();
  for (std::string line; std::getline(session.in, line); prompt()) {
    const std::string text(absl::StripAsciiWhitespace(line));
    if (text.empty()) continue;
    if (text == "/exit") break;
    if (text == "/reset") {
      conversation.Reset();
    } else if (text == "/usage") {
      conversation.PrintUsage();
    } else if (!utf8::IsValid(text)) {
      failed = absl::InvalidArgumentError("the line is not valid UTF-8");
      ReportFailure(session, failed);
    } else if (const absl::Status status = Say(conversation, text); !status.ok()) {
      failed = status;
      ReportFailure(session, status);
    }
  }
  return failed;
}

absl::StatusOr<std::vector<v1::Tool>> ReadTools(const ChatOptions& options, Session& session) {
  if (options.tools_file.empty()) return std::vector<v1::Tool>();
  if (options.tools_file == "-" && options.message.value_or("-") == "-")
    return absl::InvalidArgumentError("--tools -: standard input is read for what is said");
  QUIRE_ASSIGN_OR_RETURN(const std::string text, FileArgument(options.tools_file, session));
  absl::StatusOr<std::vector<v1::Tool>> tools = ParseTools(text);
  if (tools.ok()) return tools;
  return absl::InvalidArgumentError(absl::StrCat(options.tools_file, ": ", tools.status().message()));
}

}  // namespace

int RunChat(const ChatOptions& options, Session& session) {
  const absl::StatusOr<std::string> message = TextArgument(options.message.value_or(""), session);
  if (!message.ok()) return ReportError(session, message.status().message(), kExitUsage);
  const absl::StatusOr<std::vector<v1::Tool>> tools = ReadTools(options, session);
  if (!tools.ok()) return ReportError(session, tools.status().message(), kExitUsage);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  Conversation conversation(options, *tools, *client, session);
  if (!options.message) return RunDialogue(conversation, session).ok() ? kExitOk : kExitFailed;
  const absl::Status status = conversation.Say(*message);
  return status.ok() ? kExitOk : ReportFailure(session, status);
}

}  // namespace quire::cli
