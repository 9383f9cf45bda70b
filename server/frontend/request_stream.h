#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "model/chat/tool_parser.h"
#include "model/sampling_params.h"
#include "model/tokenizer/incremental_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "scheduler/engine.h"
#include "server/frontend/output_sink.h"
#include "server/frontend/stop_checker.h"
#include "server/frontend/token_memory.h"

namespace quire {

// Why a request shall end before its time.
enum class EndCause : uint8_t { kNone, kClientGone, kAbort, kShutdown };

// The prompt as it was computed.
struct EchoedPrompt {
  std::string text;
  std::vector<int32_t> ids;
};

// What RequestStream needs to know of a request.
struct StreamOptions {
  SamplingParams params;
  // Of the params.n sequences the client gets so many, when all have ended: those with the highest mean
  // log-probability of a token, best first. For that the engine must give these. At least params.n: all, as they come.
  int32_t num_returned = std::numeric_limits<int32_t>::max();
  bool want_text = true;
  bool want_token_ids = true;
  int32_t prompt_tokens = 0;
  EchoedPrompt echo;  // empty: not asked for
  absl::Time arrival;
  // Stop strings that are the spelling of a hidden special token: (its id, index in params.stop_strings). Such text
  // never appears, so the id stands for it; the engine has these ids among its stop ids.
  std::vector<std::pair<int32_t, int32_t>> hidden_stops;
  std::shared_ptr<TokenRecord> tokens;                              // notes what is generated; null: nobody does
  std::function<void(absl::Duration gap, bool is_first)> on_token;  // as in FrontendOptions
  ReplySyntax reply;                                                // of a chat: what its text is split into
  bool parallel_tool_calls = true;                                  // false: only the first call of a reply counts
  uint64_t call_id_key = 0;                                         // of the ids of calls
};

// Turns the engine's events about one request into what its client reads: text without half characters, cut at stop
// strings, with tokens and log-probabilities aligned. No threads, no clocks. Not thread-safe.
class RequestStream {
 public:
  // The tokenizer must outlive the stream. `prompt`: the ids that the output follows, whose text it continues (a first
  // token of the Llama 2 kind loses its space); looked at here only.
  RequestStream(const Tokenizer& tokenizer, StreamOptions options, absl::Span<const int32_t> prompt = {});
  RequestStream(const RequestStream&) = delete;
  RequestStream& operator=(const RequestStream&) = delete;

  void AddPromptScore(const PromptScoreOutput& score, absl::Span<const TokenLogprob> logprobs);

  // `cause` says what an event kAborted means. True if a stop string was found and the engine still runs the sequence:
  // it must be told.
  bool AddOutput(const SequenceOutput& output, absl::Span<const TokenLogprob> logprobs, EndCause cause);

  // Ends all sequences that still run with kAborted, for a request that the engine never got.
  void AbortAll(absl::Time now);

  // What came since the last call; nullopt if nothing. With the last sequence's end it carries usage and timings.
  std::optional<OutputDelta> Take();

  // Not OK once the request has failed; what Take gives after that is of no use.
  const absl::Status& error() const { return error_; }
  // Every sequence has ended for the client (the engine may not know yet).
  bool all_finished() const { return num_finished_ == static_cast<int32_t>(sequences_.size()); }

  const Usage& usage() const { return usage_; }
  int32_t num_sequences() const { return options_.params.n; }
  int32_t max_tokens() const { return options_.params.max_tokens; }
  int32_t longest_output() const;  // tokens
  Timings timings() const;
  FinishReason first_finish_reason() const { return returned_.empty() ? FinishReason::kNone : returned_[0]->reason; }

 private:
  struct Sequence {
    IncrementalDecoder decoder;
    StopChecker checker;
    FinishReason reason = FinishReason::kNone;
    SequenceDelta delta;  // not yet taken
    double logprob = 0;   // of all tokens, if the best are to be chosen; when they are: the mean
    int32_t num_tokens = 0;
    absl::Time token_time = absl::InfinitePast();  // of the latest
    std::optional<ReplyParser> parser = {};        // of replies that are more than text
    uint64_t num_calls = 0;
  };

  bool chooses() const { return options_.num_returned < options_.params.n; }
  void ChooseBest();

  void AddToken(const SequenceOutput& output, absl::Span<const TokenLogprob> logprobs, Sequence& sequence);
  void TellToken(const SequenceOutput& output, Sequence& sequence) const;
  std::optional<int32_t> AddText(const SequenceOutput& output, Sequence& sequence);
  std::optional<int32_t> HiddenStop(int32_t token_id) const;
  // Text that goes to the client, whole or split.
  void Deliver(std::string text, Sequence& sequence);
  void Deliver(ReplyDelta reply, Sequence& sequence);
  void EndAborted(Sequence& sequence, EndCause cause);
  void EndSequence(Sequence& sequence, Finish finish);
  Finish FinishOf(const SequenceOutput& output) const;
  void NoteProgress(const SequenceOutput& output);

  const StreamOptions options_;
  const StopStrings stops_;
  const bool decode_text_;
  EchoedPrompt echo_;  // not yet taken
  std::vector<Sequence> sequences_;
  std::vector<Sequence*> returned_;  // in order; none until the best are chosen
  int32_t num_finished_ = 0;
  bool prompt_sent_ = false;
  bool has_prompt_news_ = false;
  bool last_taken_ = false;
  std::vector<PositionLogprobs> prompt_logprobs_;  // not yet taken
  int32_t num_prompt_scores_ = 0;
  Usage usage_;
  absl::Status error_;

  absl::Time scheduled_ = absl::InfinitePast(), first_token_ = absl::InfinitePast(), latest_;
  int32_t preemptions_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;
};

}  // namespace quire
