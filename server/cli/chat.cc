#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "model/tokenizer/utf8.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

// A conversation with the server: what has been said, and what it took.
class Conversation {
 public:
  Conversation(const ChatOptions& options, Client& client, Session& session)
      : options_(options), client_(client), session_(session) {
    v1::GenerateRequest& request = *request_.mutable_request();
    request.set_model(options.model);
    if (options.max_tokens) request.mutable_stopping()->set_max_tokens(*options.max_tokens);
    for (const std::string& stop : options.stop) request.mutable_stopping()->add_stop(stop);
    if (options.temperature) request.mutable_sampling()->set_temperature(*options.temperature);
    if (options.top_p) request.mutable_sampling()->set_top_p(*options.top_p);
    if (options.seed) request.mutable_sampling()->set_seed(*options.seed);
    Reset();
  }

  // Forgets what has been said, but for the system's words.
  void Reset() {
    request_.clear_messages();
    if (!options_.system.empty()) Add("system", options_.system);
  }

  // Sends what the user says and prints the answer as it comes. What failed or was interrupted is not remembered.
  absl::Status Say(const std::string& text) {
    const int known = request_.messages_size();
    Add("user", text);
    v1::ChatMessage answer;
    absl::Status status = Ask(&answer);
    if (status.ok()) {
      *request_.add_messages() = std::move(answer);
    } else {
      request_.mutable_messages()->DeleteSubrange(known, request_.messages_size() - known);
    }
    return status;
  }

  void PrintUsage() const {
    session_.out << "turns " << num_turns_ << ", tokens of the last prompt " << last_.prompt_tokens() << " ("
                 << last_.cached_tokens() << " cached), generated " << num_generated_ << " in all\n"
                 << std::flush;
  }

 private:
  void Add(const std::string& role, const std::string& content) {
    v1::ChatMessage* message = request_.add_messages();
    message->set_role(role);
    message->set_content(content);
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
      if (!options_.json && options_.show_reasoning) session_.out << delta.reasoning();
      const bool content_begins = answer->content().empty() && !delta.text().empty();
      if (!options_.json && options_.show_reasoning && content_begins && !answer->reasoning().empty())
        session_.out << "\n\n";
      if (!options_.json) session_.out << delta.text() << std::flush;
      answer->mutable_content()->append(delta.text());
      answer->mutable_reasoning()->append(delta.reasoning());
    }
    if (!message.has_usage()) return;
    last_ = message.usage();
    num_generated_ += last_.completion_tokens();
    ++num_turns_;
  }

  void PrintJson(const v1::GenerateResponse& message) {
    if (message.has_prompt() || message.sequences_size() > 0) session_.out << JsonLine(MessageToJson(message));
    if (message.has_usage()) session_.out << JsonLine(UsageToJson(message));
    session_.out << std::flush;
  }

  const ChatOptions& options_;
  Client& client_;
  Session& session_;
  v1::ChatRequest request_;  // its messages are the conversation
  v1::Usage last_;
  uint64_t num_generated_ = 0;
  int num_turns_ = 0;
};

// Lines that are turns, or commands that begin with a slash. The status of the last turn that failed.
absl::Status RunDialogue(Conversation& conversation, Session& session) {
  absl::Status failed;
  const auto prompt = [&session] {
    if (session.in_is_terminal) session.out << "> " << std::flush;
  };
  if (session.in_is_terminal) session.out << "/reset forgets the conversation, /usage counts tokens, /exit ends\n";
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
    } else if (const absl::Status status = conversation.Say(text); !status.ok()) {
      failed = status;
      ReportFailure(session, status);
    }
  }
  return failed;
}

}  // namespace

int RunChat(const ChatOptions& options, Session& session) {
  const absl::StatusOr<std::string> message = TextArgument(options.message.value_or(""), session);
  if (!message.ok()) return ReportError(session, message.status().message(), kExitUsage);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  Conversation conversation(options, *client, session);
  if (!options.message) return RunDialogue(conversation, session).ok() ? kExitOk : kExitFailed;
  const absl::Status status = conversation.Say(*message);
  return status.ok() ? kExitOk : ReportFailure(session, status);
}

}  // namespace quire::cli
