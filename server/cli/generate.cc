#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "kernels/base/status_macros.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

void SetRules(const GenerateOptions& options, v1::Sampling* sampling) {
  if (options.repetition_penalty) sampling->set_repetition_penalty(*options.repetition_penalty);
  if (options.frequency_penalty) sampling->set_frequency_penalty(*options.frequency_penalty);
  if (options.presence_penalty) sampling->set_presence_penalty(*options.presence_penalty);
  if (options.repeat_last_n) sampling->set_repeat_last_n(*options.repeat_last_n);
  if (options.no_repeat_ngram_size) sampling->set_no_repeat_ngram_size(*options.no_repeat_ngram_size);
  for (const auto& [id, bias] : options.logit_bias) (*sampling->mutable_logit_bias())[id] = bias;
  sampling->mutable_allowed_token_ids()->Add(options.allowed_token_ids.begin(), options.allowed_token_ids.end());
  for (const std::string& word : options.bad_words) sampling->add_bad_words(word);
  if (options.dry_multiplier) sampling->mutable_dry()->set_multiplier(*options.dry_multiplier);
  if (options.dry_base) sampling->mutable_dry()->set_base(*options.dry_base);
  if (options.dry_allowed_length) sampling->mutable_dry()->set_allowed_length(*options.dry_allowed_length);
  if (options.dry_last_n) sampling->mutable_dry()->set_last_n(*options.dry_last_n);
  for (const std::string& text : options.dry_breakers) sampling->mutable_dry()->add_sequence_breakers(text);
  if (options.top_n_sigma) sampling->set_top_n_sigma(*options.top_n_sigma);
  if (options.dynatemp_range) sampling->mutable_dynamic_temperature()->set_range(*options.dynatemp_range);
  if (options.dynatemp_exponent) sampling->mutable_dynamic_temperature()->set_exponent(*options.dynatemp_exponent);
  if (options.typical_p) sampling->set_typical_p(*options.typical_p);
  if (options.xtc_probability) sampling->mutable_xtc()->set_probability(*options.xtc_probability);
  if (options.xtc_threshold) sampling->mutable_xtc()->set_threshold(*options.xtc_threshold);
  if (options.mirostat) sampling->mutable_mirostat();
  if (options.mirostat_tau) sampling->mutable_mirostat()->set_tau(*options.mirostat_tau);
  if (options.mirostat_eta) sampling->mutable_mirostat()->set_eta(*options.mirostat_eta);
}

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
  SetRules(options, &sampling);
  if (options.truncate_prompt_tokens) request.set_truncate_prompt_tokens(*options.truncate_prompt_tokens);
  if (options.truncate_right) request.set_truncation_side(v1::GenerateRequest::TRUNCATION_SIDE_RIGHT);
  v1::Stopping& stopping = *request.mutable_stopping();
  if (!options.repetition_detection.empty()) {
    stopping.mutable_repetition_detection()->set_max_pattern_size(options.repetition_detection[0]);
    stopping.mutable_repetition_detection()->set_min_pattern_size(options.repetition_detection[1]);
    stopping.mutable_repetition_detection()->set_min_count(options.repetition_detection[2]);
  }
  if (options.max_tokens) stopping.set_max_tokens(*options.max_tokens);
  stopping.set_min_tokens(options.min_tokens);
  for (const std::string& stop : options.stop) stopping.add_stop(stop);
  for (uint32_t id : options.stop_token_ids) stopping.add_stop_token_ids(id);
  stopping.set_include_stop_str_in_output(options.include_stop);
  stopping.set_ignore_eos(options.ignore_eos);
  v1::Output& output = *request.mutable_output();
  if (options.logprobs) output.set_logprobs(*options.logprobs);
  if (options.prompt_logprobs) output.set_prompt_logprobs(*options.prompt_logprobs);
  if (options.processed_logprobs) output.set_logprobs_mode(v1::Output::LOGPROBS_MODE_PROCESSED);
  output.set_echo(options.echo);
  if (options.keep_special_tokens) output.set_skip_special_tokens(false);
  if (!options.salt.empty()) request.mutable_cache()->set_salt(options.salt);
  if (options.priority) request.set_priority(*options.priority);
  return request;
}

absl::Status SetStructuredOutput(const GenerateOptions& options, Session& session, v1::GenerateRequest* request) {
  const auto structured = [request] { return request->mutable_structured_output(); };
  if (!options.json_schema_file.empty()) {
    QUIRE_ASSIGN_OR_RETURN(*structured()->mutable_json_schema(), FileArgument(options.json_schema_file, session));
  } else if (!options.grammar_file.empty()) {
    QUIRE_ASSIGN_OR_RETURN(*structured()->mutable_grammar(), FileArgument(options.grammar_file, session));
  } else if (options.json_object) {
    structured()->set_json_object(true);
  } else if (options.regex) {
    structured()->set_regex(*options.regex);
  }
  for (const std::string& choice : options.choices) structured()->mutable_choices()->add_choices(choice);
  if (options.compact_json) structured()->set_compact_json(true);
  return absl::OkStatus();
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
    if (options_.n.value_or(1) == 1) {
      out_ << message.prompt().text() << std::flush;
    } else {
      prompt_ += message.prompt().text();
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
    for (const auto& [index, text] : texts_) out_ << "[" << index << "] " << prompt_ << text << "\n";
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
  std::string prompt_;  // with echo
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
  v1::GenerateRequest request = MakeRequest(options, *prompt);
  if (absl::Status status = SetStructuredOutput(options, session, &request); !status.ok()) {
    return ReportError(session, status.message(), kExitUsage);
  }
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
