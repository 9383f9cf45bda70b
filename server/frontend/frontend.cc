#include "server/frontend/frontend.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/philox.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/detokenizer.h"
#include "server/frontend/errors.h"
#include "server/frontend/tool_choice.h"

namespace quire {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);
constexpr int64_t kMaxDuplicates = 256;  // requests that wait for their id

// No text of more bytes fits into `max_model_len` tokens. Normalization makes three bytes of text one at most (NFC, and
// a Kelvin sign in lower case). The floor is for what tokens do not show: white space that added tokens take with them,
// runs of unknown characters.
int64_t MaxTextBytes(const Tokenizer& tokenizer, int32_t max_model_len) {
  constexpr int64_t kFloor = 1 << 20, kShrinking = 3;
  int64_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, static_cast<int64_t>(tokenizer.TokenBytes(id).size()));
  return std::max(kFloor, kShrinking * longest * max_model_len);
}

RequestLimits MakeLimits(const EngineInfo& info, const Tokenizer& tokenizer, const FrontendOptions& options) {
  RequestLimits limits;
  limits.served_model_names = options.served_model_names;
  limits.vocab_size = info.config.vocab_size;
  limits.max_model_len = info.max_model_len;
  limits.max_text_bytes = MaxTextBytes(tokenizer, info.max_model_len);
  limits.max_logprobs = options.max_logprobs;
  limits.processed_logprobs = options.processed_logprobs;
  if (options.use_generation_config) {
    limits.default_temperature = info.config.default_temperature;
    limits.default_min_p = info.config.default_min_p;
    limits.default_top_p = info.config.default_top_p;
    limits.default_top_k = info.config.default_top_k;
    limits.default_repetition_penalty = info.config.default_repetition_penalty;
  }
  return limits;
}

uint64_t RandomKey() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The `index`-th of a sequence of 128-bit numbers that never repeats, keyed by `key`.
std::array<uint32_t, 4> Numbered(uint64_t key, uint64_t index) {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// Of what a tokenizer thread has to read.
int64_t PromptBytes(const ValidatedRequest& request) {
  size_t bytes = request.structured_output.source.size();
  for (const std::string& choice : request.structured_output.choices) bytes += choice.size();
  if (const auto* chat = std::get_if<std::shared_ptr<const ChatPrompt>>(&request.prompt))
    return static_cast<int64_t>(bytes) + (*chat)->bytes;
  if (const auto* text = std::get_if<std::string>(&request.prompt)) return static_cast<int64_t>(bytes + text->size());
  return static_cast<int64_t>(bytes + std::get<std::vector<int32_t>>(request.prompt).size() * sizeof(int32_t));
}

// The text of the prompt where that is what the client gave; else its ids say it.
std::string EchoedText(const ValidatedRequest& request) {
  const auto* text = std::get_if<std::string>(&request.prompt);
  const bool whole = request.before_text.empty() && request.max_prompt_tokens < 0;
  return request.echo && text != nullptr && whole ? *text : "";
}

// Advice for errors that pass by themselves, and a field for those that only the prompt can cause.
absl::Status Annotate(absl::Status status) {
  if (RetryDelayOf(status).has_value()) return status;
  if (status.code() == absl::StatusCode::kResourceExhausted || status.code() == absl::StatusCode::kUnavailable)
    return RetryAfter(std::move(status), kRetryDelay);
  return status;
}

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kRepetition:
      return "repetition";
    case FinishReason::kAborted:
      return "abort";
    default:
      return "";
  }
}

}  // namespace

Frontend::Frontend(Engine& engine, const Tokenizer& tokenizer, FrontendOptions options)
    : engine_(engine),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      validator_(MakeLimits(engine.info(), tokenizer, options_)),
      id_key_(RandomKey()),
      memory_(options_.max_remembered_tokens),
      constraints_(tokenizer, engine.info().config.eos_token_ids, engine.info().config.vocab_size),
      pool_({options_.num_tokenizer_threads, options_.max_encoding_requests, options_.max_encoding_bytes}),
      duplicates_({.num_threads = 1, .max_tasks = kMaxDuplicates}),
      cache_(engine, *this) {
  QUIRE_CHECK(!options_.served_model_names.empty());
  for (int32_t shard = 0; shard < options_.num_output_shards; ++shard) {
    detokenizers_.emplace_back([this, shard] {
      Detokenizer(engine_, shard, live_, [this](LiveRequest& live, const absl::Status& status) {
        NoteEnd(live, status);
      }).Run();
    });
  }
}

Frontend::~Frontend() { Stop(); }

absl::StatusOr<uint64_t> Frontend::Generate(GenerateRequest request, std::shared_ptr<OutputSink> sink) {
  const absl::Time now = absl::Now();
  if (request.deadline <= now) return absl::DeadlineExceededError("the deadline had passed when the request arrived");
  QUIRE_ASSIGN_OR_RETURN(ValidatedRequest validated, validator_.Validate(std::move(request)));
  auto live = std::make_shared<LiveRequest>();
  live->handle = next_handle_.fetch_add(1, std::memory_order_relaxed);
  if (validated.request_id.empty()) validated.request_id = MakeRequestId(live->handle);
  if (!validated.has_seed) validated.params.seed = NextSeed();
  live->request_id = validated.request_id;
  live->arrival = now;
  live->sink = std::move(sink);
  if (absl::Status status = live_.Add(live); !status.ok()) return Annotate(std::move(status));
  live->sink->Accepted(live->request_id, live->handle);

  auto shared = std::make_shared<ValidatedRequest>(std::move(validated));
  const absl::Status claimed = live_.ClaimId(*live, absl::InfinitePast());
  absl::Status posted = claimed.ok() ? PostEncode(shared, live) : PostDuplicate(shared, live);
  if (!claimed.ok() && posted.code() == absl::StatusCode::kResourceExhausted) posted = claimed;
  if (!posted.ok()) {
    live_.Remove(*live);
    return posted;
  }
  return live->handle;
}

absl::StatusOr<uint64_t> Frontend::Fork(ForkRequest fork, std::shared_ptr<OutputSink> sink) {
  QUIRE_RETURN_IF_ERROR(SetForkPoint(&fork));
  return Generate(std::move(fork.request), std::move(sink));
}

absl::Status Frontend::SetForkPoint(ForkRequest* fork) const {
  QUIRE_RETURN_IF_ERROR(Validator::CheckTenant("x-tenant", fork->request.tenant));
  const std::shared_ptr<const TokenRecord> record = memory_.Find(fork->request.tenant, fork->request_id);
  if (record == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("request_id: no request ", Quoted(fork->request_id), " of this tenant is live or was lately"));
  }
  if (fork->sequence < 0 || fork->sequence >= record->num_sequences()) {
    return InvalidField("sequence", absl::StrCat(fork->sequence, " is out of range; must be in [0, ",
                                                 record->num_sequences() - 1, "]"));
  }
  const auto sequence = static_cast<int32_t>(fork->sequence);
  std::vector<int32_t> tokens = record->Tokens(sequence);
  const auto known = static_cast<int64_t>(tokens.size());
  const int64_t at = fork->at_token.value_or(known);
  if (at < 1 || at > known) {
    return InvalidField("at_token",
                        absl::StrCat(at, " is out of range; must be in [1, ", known, "], the tokens known so far"));
  }
  tokens.resize(at);
  std::string& salt = fork->request.cache.salt;
  if (!salt.empty() && salt != record->origin().cache_salt) {
    return InvalidField("request.cache.salt", "is not that of the forked request; leave it out");
  }
  salt = record->origin().cache_salt;
  fork->request.fork = ForkPoint{record->origin().handle, sequence, std::move(tokens)};
  return absl::OkStatus();
}

absl::Status Frontend::PostEncode(const std::shared_ptr<ValidatedRequest>& request,
                                  const std::shared_ptr<LiveRequest>& live) {
  return Annotate(pool_.Post(PromptBytes(*request),
                             [this, request, live] { FailIf(TrySubmit(std::move(*request), live), *live); }));
}

absl::Status Frontend::PostDuplicate(const std::shared_ptr<ValidatedRequest>& request,
                                     const std::shared_ptr<LiveRequest>& live) {
  const absl::Time until = std::min(request->deadline, live->arrival + options_.duplicate_wait);
  return Annotate(duplicates_.Post(PromptBytes(*request), [this, request, live, until] {
    const absl::Status claimed = live_.ClaimId(*live, until);
    FailIf(claimed.ok() ? PostEncode(request, live) : claimed, *live);
  }));
}

void Frontend::FailIf(const absl::Status& status, LiveRequest& live) {
  if (status.ok()) return;
  NoteEnd(live, status);
  live.sink->Fail(status);
  live_.Remove(live);
}

absl::Status Frontend::TrySubmit(ValidatedRequest request, const std::shared_ptr<LiveRequest>& live) {
  if (request.deadline <= absl::Now())
    return absl::DeadlineExceededError("the deadline passed while the prompt waited for the tokenizer");
  std::vector<int32_t> ids;
  const EndCause cause = live_.CauseOf(*live);
  if (cause == EndCause::kClientGone) return absl::CancelledError("cancelled by the client");
  if (cause == EndCause::kShutdown) return Annotate(absl::UnavailableError("the server is shutting down"));
  std::string echoed = EchoedText(request);
  QUIRE_ASSIGN_OR_RETURN(ids, TakePromptIds(request));
  SamplingParams& params = request.params;
  QUIRE_RETURN_IF_ERROR(validator_.FitPrompt(ids, request.has_max_tokens, &params));
  if (request.rules.any()) QUIRE_RETURN_IF_ERROR(SetRules(std::move(request.rules), &params));
  QUIRE_ASSIGN_OR_RETURN(const Retention retention,
                         Validator::FitRetention(request.cache, static_cast<int32_t>(ids.size())));
  QUIRE_ASSIGN_OR_RETURN(const int32_t tenant, tenants_.NumberOf(request.tenant));
  QUIRE_ASSIGN_OR_RETURN(auto constraint, constraints_.Get(request.structured_output));

  const auto tokens = std::make_shared<TokenRecord>(
      TokenRecord::Origin{live->request_id, request.tenant, request.cache.salt, live->handle}, ids, params.n);
  StreamOptions stream;
  stream.tokens = tokens;
  stream.hidden_stops = AddHiddenStops(&params);
  stream.params = params;
  stream.num_returned = request.num_returned;
  if (stream.num_returned < params.n && !params.logprobs) params.logprobs = 0;  // to know the best ones
  stream.want_text = request.want_text;
  stream.want_token_ids = request.want_token_ids;
  stream.prompt_tokens = static_cast<int32_t>(ids.size());
  stream.arrival = live->arrival;
  stream.on_token = options_.on_token;
  if (request.echo) {
    if (echoed.empty()) echoed = tokenizer_.Decode(ids, params.skip_special_tokens);
    stream.echo = {std::move(echoed), ids};
  }
  stream.reply = request.reply;
  stream.parallel_tool_calls = request.parallel_tool_calls;
  stream.call_id_key = id_key_ ^ live->handle;
  live->stream = std::make_unique<RequestStream>(tokenizer_, std::move(stream), ids);
  if (cause == EndCause::kAbort) {
    FinishAborted(*live);
    return absl::OkStatus();
  }
  live->tokens = tokens;
  memory_.Begin(tokens);

  const KeyContext context = KeyContextOf(request.cache.salt, request.tenant);
  EngineRequest out = MakeEngineRequest(std::move(ids), std::move(params), engine_.info().block_size, context);
  out.handle = live->handle;
  out.constraint = std::move(constraint);
  out.priority = request.priority;
  out.deadline = request.deadline;
  out.arrival = live->arrival;
  out.tenant_name = std::move(request.tenant);
  out.fork_of = request.fork_of;
  out.offline = request.offline;
  out.ttft_target = request.ttft_target;
  out.tpot_target = request.tpot_target;
  out.tenant = tenant;
  out.reads_cache = !request.cache.no_read;
  out.writes_cache = !request.cache.no_write;
  out.retention = retention;
  const absl::Status submitted = engine_.Submit(std::move(out));
  if (submitted.code() == absl::StatusCode::kInvalidArgument)
    return InvalidField("prompt", std::string(submitted.message()));
  if (!submitted.ok()) return Annotate(submitted);
  if (live_.MarkSubmitted(*live)) engine_.Abort(live->handle);
  return absl::OkStatus();
}

std::vector<std::pair<int32_t, int32_t>> Frontend::AddHiddenStops(SamplingParams* params) const {
  std::vector<std::pair<int32_t, int32_t>> hidden;
  if (!params->skip_special_tokens) return hidden;
  for (size_t i = 0; i < params->stop_strings.size(); ++i) {
    const int32_t id = tokenizer_.TokenId(params->stop_strings[i]);
    if (id < 0 || id >= engine_.info().config.vocab_size || !tokenizer_.IsSpecial(id)) continue;
    hidden.emplace_back(id, static_cast<int32_t>(i));
    params->stop_token_ids.push_back(id);
  }
  return hidden;
}

void Frontend::FinishAborted(LiveRequest& live) {
  live.stream->AbortAll(absl::Now());
  NoteEnd(live, absl::OkStatus());
  live.sink->Write(*live.stream->Take());
  live_.Remove(live);
}

void Frontend::Cancel(uint64_t handle) {
  if (live_.End(handle, EndCause::kClientGone)) engine_.Abort(handle);
}

void Frontend::Abort(absl::Span<const std::string> request_ids) {
  for (uint64_t handle : live_.FindIds(request_ids)) {
    if (live_.End(handle, EndCause::kAbort)) engine_.Abort(handle);
  }
}

void Frontend::Tokenize(std::string text, bool add_special_tokens,
                        std::function<void(absl::StatusOr<std::vector<int32_t>>)> done) {
  const auto bytes = static_cast<int64_t>(text.size());
  const absl::Status posted = pool_.Post(bytes, [this, text = std::move(text), add_special_tokens, done] {
    absl::StatusOr<std::vector<int32_t>> ids = tokenizer_.Encode(text, add_special_tokens);
    if (!ids.ok()) ids = InvalidField("text", std::string(ids.status().message()));
    done(std::move(ids));
  });
  if (!posted.ok()) done(Annotate(posted));
}

void Frontend::Detokenize(std::vector<int64_t> ids, bool skip_special_tokens,
                          std::function<void(absl::StatusOr<std::string>)> done) {
  std::vector<int32_t> checked;
  checked.reserve(ids.size());
  const int64_t vocab_size = std::max(tokenizer_.vocab_size(), engine_.info().config.vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return done(InvalidField(absl::StrCat("ids[", i, "]"),
                               absl::StrCat(ids[i], " is out of range; must be in [0, ", vocab_size - 1, "]")));
    }
    checked.push_back(static_cast<int32_t>(ids[i]));
  }
  const auto bytes = static_cast<int64_t>(checked.size() * sizeof(int32_t));
  const absl::Status posted = pool_.Post(bytes, [this, checked = std::move(checked), skip_special_tokens, done] {
    done(tokenizer_.Decode(checked, skip_special_tokens));
  });
  if (!posted.ok()) done(Annotate(posted));
}

KeyContext Frontend::KeyContextOf(const std::string& salt, const std::string& tenant) const {
  KeyContext context = engine_.info().key_context;
  context.salt = salt;
  context.tenant = tenant;
  return context;
}

absl::StatusOr<std::vector<int32_t>> Frontend::TakePromptIds(ValidatedRequest& request) const {
  if (auto* given = std::get_if<std::vector<int32_t>>(&request.prompt)) return std::move(*given);
  std::vector<int32_t> ids = std::move(request.before_text);
  absl::StatusOr<std::vector<int32_t>> encoded;
  if (auto* chat = std::get_if<std::shared_ptr<const ChatPrompt>>(&request.prompt)) {
    const std::shared_ptr<const ChatPrompt> prompt = std::exchange(*chat, nullptr);
    encoded = EncodeChat(*prompt, static_cast<int64_t>(ids.size()), &request);
    if (!encoded.ok()) return encoded.status();
  } else {
    auto& text = std::get<std::string>(request.prompt);
    encoded = EncodeText(text, {}, request, static_cast<int64_t>(ids.size()));
    text = {};
    if (!encoded.ok()) return InvalidField("text", std::string(encoded.status().message()));
  }
  ids.insert(ids.end(), encoded->begin(), encoded->end());
  request.Truncate(&ids);
  return ids;
}

// Cut by the tokenizer, which keeps its special tokens; behind other ids, by the caller.
absl::StatusOr<std::vector<int32_t>> Frontend::EncodeText(const std::string& text, std::vector<TextRange> literal,
                                                          const ValidatedRequest& request, int64_t ids_before) const {
  const bool is_cut = request.max_prompt_tokens >= 0 && ids_before == 0;
  if (!is_cut && literal.empty()) return tokenizer_.Encode(text, request.add_special_tokens);
  EncodeOptions options;
  options.add_special_tokens = request.add_special_tokens;
  options.literal = std::move(literal);
  if (is_cut) options.max_tokens = request.max_prompt_tokens;
  options.keep = request.keeps_first ? EncodeOptions::Keep::kFirst : EncodeOptions::Keep::kLast;
  QUIRE_ASSIGN_OR_RETURN(Encoding encoding, tokenizer_.EncodeWith(text, options));
  return std::move(encoding.ids);
}

absl::StatusOr<std::vector<int32_t>> Frontend::EncodeChat(const ChatPrompt& prompt, int64_t ids_before,
                                                          ValidatedRequest* request) const {
  if (options_.chat == nullptr) return absl::InvalidArgumentError("this server was given no chat template");
  QUIRE_ASSIGN_OR_RETURN(ChatText text, options_.chat->Render(prompt));
  if (request->max_prompt_tokens < 0) QUIRE_RETURN_IF_ERROR(validator_.CheckTextBytes("messages", text.text.size()));
  request->reply = text.reply;
  request->parallel_tool_calls = prompt.parallel_tool_calls;
  QUIRE_RETURN_IF_ERROR(SetReplyForm(prompt, request));
  auto ids = EncodeText(text.text, std::move(text.literal), *request, ids_before);
  if (!ids.ok()) return InvalidField("messages", std::string(ids.status().message()));
  return ids;
}

absl::Status Frontend::SetReplyForm(const ChatPrompt& prompt, ValidatedRequest* request) {
  StructuredOutput& wanted = request->structured_output;
  if (prompt.tool_choice == ToolChoice::kRequired) {
    if (wanted.kind != StructuredOutput::Kind::kFree)
      return InvalidField(wanted.field, "does not go with a tool_choice that requires a call");
    if (request->params.beam_width > 0) return InvalidField("tool_choice", "cannot require a call with beam search");
    QUIRE_ASSIGN_OR_RETURN(wanted, RequireToolCall(prompt, request->reply.tools));
  }
  wanted.reasoning = ReasoningBefore(request->reply.reasoning);
  return absl::OkStatus();
}

absl::Status Frontend::SetRules(CheckedRules checked, SamplingParams* params) const {
  auto rules = std::make_shared<SamplingRules>();
  QUIRE_ASSIGN_OR_RETURN(*rules,
                         ResolveSamplingRules(std::move(checked), tokenizer_, engine_.info().config.vocab_size));
  params->needs_output |= rules->sees_tokens() || rules->keeps_state();
  params->rules = std::move(rules);
  return absl::OkStatus();
}

void Frontend::EncodePrompt(std::shared_ptr<ValidatedRequest> request,
                            std::function<void(absl::StatusOr<std::vector<int32_t>>)> done) {
  const absl::Status posted =
      pool_.Post(PromptBytes(*request), [this, request, done] { done(TakePromptIds(*request)); });
  if (!posted.ok()) done(Annotate(posted));
}

void Frontend::BeginDrain() { live_.Close(); }

bool Frontend::WaitIdle(absl::Time deadline) { return live_.WaitEmpty(deadline); }

void Frontend::Stop() {
  if (stopped_.exchange(true)) return;
  live_.Close();
  live_.EndAll(EndCause::kShutdown);
  duplicates_.Stop();
  pool_.Stop();
  engine_.Stop();
  cache_.Stop();
  for (std::thread& thread : detokenizers_) thread.join();
  // Only an engine that died has left any.
  for (const std::shared_ptr<LiveRequest>& live : live_.All()) {
    if (!live->sink_ended) {
      const absl::Status status = Annotate(absl::UnavailableError("the engine has stopped"));
      NoteEnd(*live, status);
      live->sink->Fail(status);
    }
    live_.Remove(*live);
  }
}

void Frontend::NoteEnd(LiveRequest& live, const absl::Status& status) {
  if (live.tokens != nullptr) memory_.Finish(live.tokens);
  // Before the client hears of the end: it may use the id again at once.
  live_.ReleaseId(live);
  if (!options_.on_finished) return;
  RequestRecord record;
  record.request_id = live.request_id;
  record.code = status.code();
  record.error = std::string(status.message());
  if (live.stream != nullptr) {
    if (status.ok()) record.finish = FinishName(live.stream->first_finish_reason());
    record.usage = live.stream->usage();
    record.timings = live.stream->timings();
    record.num_sequences = live.stream->num_sequences();
    record.max_tokens = live.stream->max_tokens();
    record.longest_output = live.stream->longest_output();
  }
  options_.on_finished(record);
}

std::string Frontend::MakeRequestId(uint64_t handle) const {
  const std::array<uint32_t, 4> bits = Numbered(id_key_, handle);
  return absl::StrFormat("%08x%08x%08x%08x", bits[0], bits[1], bits[2], bits[3]);
}

// Of 53 bits: a client that reads numbers of JSON as doubles can give it back.
uint64_t Frontend::NextSeed() {
  const std::array<uint32_t, 4> bits = Numbered(options_.seed, num_seeds_.fetch_add(1, std::memory_order_relaxed));
  return (uint64_t{bits[1] >> 11} << 32) | bits[0];
}

}  // namespace quire
