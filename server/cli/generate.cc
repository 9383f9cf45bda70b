#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

v1::GenerateRequest MakeRequest(const GenerateOptions& options, const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_request_id(options.request_id);
  request.set_model(options.model);
  if (options.ids.empty()) {
    if (options.prompt) request.set_text(prompt);
    if (options.no_special_tokens) request.set_add_special_tokens(false);
  } else {
    request.mutable_token_ids()->mutable_ids()->Assign(options.ids.begin(), options.ids.end());
  }
  v1::Sampling& sampling = *request.mutable_sampling();
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.min_p) sampling.set_min_p(*options.min_p);
  if (options.top_k) sampling.set_top_k(*options.top_k);
  if (options.top_p) sampling.set_top_p(*options.top_p);
  if (options.seed) sampling.set_seed(*options.seed);
  if (options.n) sampling.set_n(*options.n);
  if (options.best_of) sampling.set_best_of(*options.best_of);
  if (options.beam_width) sampling.mutable_beam_search()->set_width(*options.beam_width);
  if (options.length_penalty) sampling.mutable_beam_search()->set_length_penalty(*options.length_penalty);
  if (options.early_stopping) {
    sampling.mutable_beam_search()->set_early_stopping(
        *options.early_stopping == "yes"     ? v1::BeamSearch::EARLY_STOPPING_YES
        : *options.early_stopping == "never" ? v1::BeamSearch::EARLY_STOPPING_NEVER
                                             : v1::BeamSearch::EARLY_STOPPING_NO);
  }
  v1::Stopping& stopping = *request.mutable_stopping();
  if (options.max_tokens) stopping.set_max_tokens(*options.max_tokens);
  stopping.set_min_tokens(options.min_tokens);
  for (const std::string& stop : options.stop) stopping.add_stop(stop);
  for (uint32_t id : options.stop_token_ids) stopping.add_stop_token_ids(id);
  stopping.set_include_stop_str_in_output(options.include_stop);
  stopping.set_ignore_eos(options.ignore_eos);
  v1::Output& output = *request.mutable_output();
  if (options.logprobs) output.set_logprobs(*options.logprobs);
  if (options.prompt_logprobs) output.set_prompt_logprobs(*options.prompt_logprobs);
  if (options.keep_special_tokens) output.set_skip_special_tokens(false);
  if (!options.salt.empty()) request.mutable_cache()->set_salt(options.salt);
  if (options.priority) request.set_priority(*options.priority);
  return request;
}

v1::ForkRequest MakeFork(const GenerateOptions& options, v1::GenerateRequest request) {
  v1::ForkRequest fork;
  fork.set_request_id(options.fork);
  fork.set_sequence(options.fork_sequence);
  if (options.fork_at) fork.set_at_token(*options.fork_at);
  *fork.mutable_request() = std::move(request);
  return fork;
}

// Prints an answer as it comes. One sequence is streamed; several are kept and printed one after the other at the end.
class Printer {
 public:
  Printer(const GenerateOptions& options, std::ostream& out) : options_(options), out_(out) {}

  void Add(const v1::GenerateResponse& message) {
    if (options_.json) {
      AddJson(message);
      return;
    }
    for (int i = 1; i < message.prompt().logprobs_size(); ++i) {
      absl::StrAppend(&notes_, "prompt ", i, "  logprob ", message.prompt().logprobs(i).logprob(), "  rank ",
                      message.prompt().logprobs(i).rank(), "\n");
    }
    for (const v1::SequenceDelta& delta : message.sequences()) {
      if (options_.n.value_or(1) > 1) {
        texts_[delta.index()] += delta.text();
      } else {
        out_ << delta.text() << std::flush;
        streamed_ += delta.text();
      }
      AddLogprobs(delta);
    }
  }

  // Ends the output, also that of a failed call.
  void Finish() {
    if (options_.json) return;
    for (const auto& [index, text] : texts_) out_ << "[" << index << "] " << text << "\n";
    if (!streamed_.empty() && streamed_.back() != '\n') out_ << "\n";
    out_ << notes_ << std::flush;
  }

 private:
  void AddJson(const v1::GenerateResponse& message) {
    const bool has_usage = message.has_usage() || message.has_timings();
    if (message.has_prompt() || message.sequences_size() > 0 || !has_usage) out_ << JsonLine(MessageToJson(message));
    if (has_usage) out_ << JsonLine(UsageToJson(message));
    out_ << std::flush;
  }

  void AddLogprobs(const v1::SequenceDelta& delta) {
    // Entries belong to the tokens generated; ids may be left out of the message or trimmed by a stop string.
    for (int i = 0; i < delta.logprobs_size(); ++i) {
      if (options_.n.value_or(1) > 1) absl::StrAppend(&notes_, "[", delta.index(), "] ");
      absl::StrAppend(&notes_, LogprobLine(i < delta.token_ids_size() ? delta.token_ids(i) : 0, delta.logprobs(i)),
                      "\n");
    }
  }

  const GenerateOptions& options_;
  std::ostream& out_;
  std::map<uint32_t, std::string> texts_;
  std::string streamed_;
  std::string notes_;
};

}  // namespace

int RunGenerate(const GenerateOptions& options, Session& session) {
  const absl::StatusOr<std::string> prompt = TextArgument(options.prompt.value_or(""), session);
  if (!prompt.ok()) return ReportError(session, prompt.status().message(), kExitUsage);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const v1::GenerateRequest request = MakeRequest(options, *prompt);
  Printer printer(options, session.out);
  absl::Status status;
  const bool chosen_at_end = options.fork.empty() && options.best_of.value_or(1) > options.n.value_or(1);
  if (options.no_stream || chosen_at_end) {
    auto response = client->Generate(request);
    status = response.status();
    if (response.ok()) printer.Add(*response);
  } else {
    absl::Notification done;
    const auto on_message = [&](const v1::GenerateResponse& message) { printer.Add(message); };
    const auto on_done = [&](const absl::Status& result) {
      status = result;
      done.Notify();
    };
    const std::shared_ptr<Call> call = options.fork.empty()
                                           ? client->NewGenerate(request, on_message, on_done)
                                           : client->NewFork(MakeFork(options, request), on_message, on_done);
    InterruptWatch interrupt([&] { call->Cancel(); });
    call->Start();
    done.WaitForNotification();
  }
  printer.Finish();
  return status.ok() ? kExitOk : ReportFailure(session, status);
}

}  // namespace quire::cli
