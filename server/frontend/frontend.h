#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"
#include "scheduler/engine.h"
#include "server/frontend/api_keys.h"
#include "server/frontend/cache_admin.h"
#include "server/frontend/chat_format.h"
#include "server/frontend/constraint_cache.h"
#include "server/frontend/generate_request.h"
#include "server/frontend/live_requests.h"
#include "server/frontend/output_sink.h"
#include "server/frontend/tenants.h"
#include "server/frontend/tokenizer_pool.h"
#include "server/frontend/validator.h"

namespace quire {

// One finished request, for the access log: never any prompt or output text.
struct RequestRecord {
  std::string request_id;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string error;   // message of a failed request
  std::string finish;  // of sequence 0: "stop", "length", "repetition", "abort"; empty for failed ones
  Usage usage;
  Timings timings;
  int32_t num_sequences = 0;   // that ran; 0: the engine never had it, and neither are there usage and timings
  int32_t max_tokens = 0;      // that each might have
  int32_t longest_output = 0;  // that one of them had
};

struct FrontendOptions {
  const ApiKeyStore* keys = nullptr;            // that callers must show; outlives the front end; null: none
  std::vector<std::string> served_model_names;  // at least one; the first is reported
  bool use_generation_config = true;            // sampling defaults of the model apply
  int32_t max_logprobs = 20;                    // -1: up to the whole vocabulary
  bool processed_logprobs = false;              // what requests get that do not say
  uint64_t seed = 0;                            // of the seeds given to requests that bring none
  int32_t num_output_shards = 1;                // as in EngineOptions
  int32_t num_tokenizer_threads = 1;
  int32_t max_encoding_requests = 1024;     // requests between arrival and engine; beyond: kResourceExhausted
  int64_t max_encoding_bytes = 256 << 20;   // their texts together; one text alone is always taken
  int64_t max_remembered_tokens = 1 << 20;  // of finished requests that Fork can name, 4 bytes each
  // How long a request waits for a live one of the same id: its client may have cancelled that just before, and the
  // cancellation is not noticed yet.
  absl::Duration duplicate_wait = absl::Milliseconds(250);
  std::function<void(const RequestRecord&)> on_finished;  // any thread; may be empty
  // Of each token: how long it came after the one before it, or the first one of a request after its arrival.
  // Detokenizer threads; may be empty.
  std::function<void(absl::Duration gap, bool is_first)> on_token;
  std::shared_ptr<const ChatFormat> chat;  // null: the server was told of none, and conversations are refused
};

// Everything between a wire format and the engine: checks, admission, tokenizing, detokenizing, stop strings, request
// ids. Knows no wire format. All functions are safe from any thread and none of them waits for the engine or a
// tokenizer, except WaitIdle and Stop.
class Frontend {
 public:
  // Both must outlive the front end. The engine must have been started.
  Frontend(Engine& engine, const Tokenizer& tokenizer, FrontendOptions options);
  ~Frontend();  // Stop

  // kInvalidArgument unless a prompt of so many tokens leaves room for one of output: lets a caller refuse ids before
  // it copies them. Generate checks it as well.
  absl::Status CheckPromptLength(int64_t tokens) const { return validator_.CheckLength(tokens); }

  // Takes a request over. On success its output goes to `sink` and the handle is good for Cancel; on error `sink` is
  // told Accepted at most: kInvalidArgument, kNotFound (model), kResourceExhausted, kUnavailable, kDeadlineExceeded.
  // What takes time comes through the sink: checks that need the token count, and kAlreadyExists (live id).
  absl::StatusOr<uint64_t> Generate(GenerateRequest request, std::shared_ptr<OutputSink> sink);

  // The same for a request whose prompt begins with the tokens of another one of the same tenant, live or remembered.
  // kNotFound if there is none; kInvalidArgument for a sequence or a token that it has not.
  absl::StatusOr<uint64_t> Fork(ForkRequest fork, std::shared_ptr<OutputSink> sink);

  // The reader has gone: ends the request with kCancelled. Finished handles are ignored.
  void Cancel(uint64_t handle);
  // The reader does not keep up, or does again: nothing is generated for it meanwhile. What steps under way bring still
  // comes. Takes no lock under which a sink is called.
  void SetHeld(uint64_t handle, bool held) { engine_.SetHeld(handle, held); }
  // Ends requests by the client's ids: their sequences finish with kAborted. Unknown ids are ignored.
  void Abort(absl::Span<const std::string> request_ids);

  // On a tokenizer thread; `done` is called exactly once, maybe before these return. kInvalidArgument for malformed
  // UTF-8 or ids that are not in the vocabulary; kResourceExhausted.
  void Tokenize(std::string text, bool add_special_tokens,
                std::function<void(absl::StatusOr<std::vector<int32_t>>)> done);
  void Detokenize(std::vector<int64_t> ids, bool skip_special_tokens,
                  std::function<void(absl::StatusOr<std::string>)> done);

  // The root of all prefixes of a salt and a tenant.
  KeyContext KeyContextOf(const std::string& salt, const std::string& tenant) const;
  Tenants& tenants() { return tenants_; }
  // Checks a request as Generate does, and no more: for those that only name a prompt.
  absl::StatusOr<ValidatedRequest> Validate(GenerateRequest request) const {
    return validator_.Validate(std::move(request));
  }
  // On a tokenizer thread: the ids of a validated request's prompt.
  void EncodePrompt(std::shared_ptr<ValidatedRequest> request,
                    std::function<void(absl::StatusOr<std::vector<int32_t>>)> done);
  CacheAdmin& cache() { return cache_; }

  // New requests get kUnavailable from now on; taken ones go on.
  void BeginDrain();
  bool draining() const { return live_.closed(); }
  // Blocks until no request is live, or until `deadline`; true if none is.
  bool WaitIdle(absl::Time deadline);
  // Ends what is left with kUnavailable, stops the engine, joins all threads. Idempotent.
  void Stop();

  const EngineInfo& info() const { return engine_.info(); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  EngineStats GetEngineStats() const { return engine_.GetStats(); }
  bool IsHealthy() const { return engine_.IsHealthy(); }
  const FrontendOptions& options() const { return options_; }
  int64_t num_live_requests() const { return live_.size(); }

 private:
  // The ids of the prompt, moved out of it, and what to look for in the reply; kInvalidArgument naming the field.
  absl::StatusOr<std::vector<int32_t>> TakePromptIds(ValidatedRequest& request) const;
  absl::StatusOr<std::vector<int32_t>> EncodeText(const std::string& text, std::vector<TextRange> literal,
                                                  const ValidatedRequest& request, int64_t ids_before) const;
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatPrompt& prompt, int64_t ids_before,
                                                  ValidatedRequest* request) const;
  // What the reply to a rendered conversation must be, beside what the client asks of its text.
  static absl::Status SetReplyForm(const ChatPrompt& prompt, ValidatedRequest* request);
  absl::Status SetRules(CheckedRules checked, SamplingParams* params) const;
  absl::Status PostEncode(const std::shared_ptr<ValidatedRequest>& request, const std::shared_ptr<LiveRequest>& live);
  // The same once the id is free.
  absl::Status PostDuplicate(const std::shared_ptr<ValidatedRequest>& request,
                             const std::shared_ptr<LiveRequest>& live);
  // Aims a request at the point where it forks off.
  absl::Status SetForkPoint(ForkRequest* fork) const;
  absl::Status TrySubmit(ValidatedRequest request, const std::shared_ptr<LiveRequest>& live);
  // Ends a request that the engine has not got, unless `status` is OK.
  void FailIf(const absl::Status& status, LiveRequest& live);
  // Adds the ids of stop strings that spell a special token hidden from the text; see StreamOptions::hidden_stops.
  std::vector<std::pair<int32_t, int32_t>> AddHiddenStops(SamplingParams* params) const;
  void FinishAborted(LiveRequest& live);
  void NoteEnd(LiveRequest& live, const absl::Status& status);
  std::string MakeRequestId(uint64_t handle) const;
  uint64_t NextSeed();

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const FrontendOptions options_;
  const Validator validator_;
  const uint64_t id_key_;  // of made-up request ids: nobody can guess another's
  std::atomic<uint64_t> next_handle_ = 1;
  std::atomic<uint64_t> num_seeds_ = 0;
  Tenants tenants_;
  LiveRequests live_;
  TokenMemory memory_;
  ConstraintCache constraints_;
  TokenizerPool pool_;
  TokenizerPool duplicates_;  // a thread that waits for ids, one after the other
  CacheAdmin cache_;
  std::vector<std::thread> detokenizers_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace quire
