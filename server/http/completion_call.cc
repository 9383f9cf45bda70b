#include "server/http/completion_call.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/http/http_errors.h"

namespace quire {
namespace {

// As at the gRPC port: half of the 1 MiB that a client may leave unread is in the message under way.
constexpr int64_t kMaxMessageBytes = 512 << 10, kHoldAboveBytes = 512 << 10;
// A whole answer is collected first.
constexpr int64_t kMaxWholeBytes = 64 << 20;

std::string MakeId(const CompletionRequest& request) {
  const char* const kind = request.is_chat ? "chatcmpl-" : "cmpl-";
  if (!request.request_id.empty()) return kind + request.request_id;
  std::random_device random;
  return absl::StrFormat("%s%08x%08x%08x%08x", kind, random(), random(), random(), random());
}

std::string ModelOf(const CompletionRequest& request, const Frontend& frontend) {
  return request.model.empty() ? frontend.options().served_model_names.front() : request.model;
}

// What a request says of its answer.
void AddHeaders(const CompletionRequest& request, HttpResponse* answer) {
  if (!request.request_id.empty()) answer->headers.emplace_back("X-Request-Id", request.request_id);
  if (!request.ignored_fields.empty()) answer->headers.emplace_back("X-Ignored-Fields", request.ignored_fields);
}

HttpResponse StreamHead(const CompletionRequest& request) {
  HttpResponse head;
  head.content_type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  AddHeaders(request, &head);
  return head;
}

// Of a sequence that was asked for its prompt only.
SequenceDelta NothingButTheEnd(int32_t index) {
  SequenceDelta delta;
  delta.index = index;
  delta.finish.emplace().reason = FinishReason::kLength;
  return delta;
}

}  // namespace

// Where the output of one prompt goes.
class CompletionCall::Sink final : public OutputSink {
 public:
  Sink(std::shared_ptr<CompletionCall> call, size_t index) : call_(std::move(call)), index_(index) {}

  void Accepted(const std::string&, uint64_t handle) override { call_->Accepted(index_, handle); }
  void Write(OutputDelta delta) override { call_->Add(index_, std::move(delta)); }
  void Fail(const absl::Status& status) override { call_->Fail(status); }
  bool IsGone() const override {
    MutexLock lock(&call_->mutex_);
    return call_->finished_;
  }

 private:
  const std::shared_ptr<CompletionCall> call_;
  const size_t index_;
};

CompletionCall::CompletionCall(std::shared_ptr<HttpExchange> exchange, Frontend& frontend, CompletionRequest request)
    : frontend_(frontend),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      format_(frontend.tokenizer(), request_, MakeId(request_), ModelOf(request_, frontend),
              absl::ToUnixSeconds(absl::Now())),
      last_sent_(absl::Now()) {
  parts_.resize(request_.prompts.size());
  exchange_->request() = {};  // it has been read, and may be large
}

std::shared_ptr<CompletionCall> CompletionCall::Start(std::shared_ptr<HttpExchange> exchange, Frontend& frontend,
                                                      CompletionRequest request) {
  const std::shared_ptr<CompletionCall> call(new CompletionCall(std::move(exchange), frontend, std::move(request)));
  {
    MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  call->exchange_->SetListener(call);
  call->Submit();
  return call;
}

void CompletionCall::Submit() {
  for (size_t i = 0; i < request_.prompts.size(); ++i) {
    {
      MutexLock lock(&mutex_);
      if (finished_) return;
    }
    const absl::Status status =
        frontend_.Generate(request_.Take(i), std::make_shared<Sink>(shared_from_this(), i)).status();
    if (!status.ok()) return Fail(status);
  }
}

void CompletionCall::Accepted(size_t index, uint64_t handle) {
  bool gone;
  {
    MutexLock lock(&mutex_);
    Part& part = parts_[index];
    part.handle = handle;
    // Now, since n has been checked.
    for (int64_t i = 0; i < request_.n; ++i) part.choices.push_back({static_cast<int64_t>(index) * request_.n + i});
    gone = finished_;
  }
  if (gone) frontend_.Cancel(handle);  // the client went before there was anything to cancel
}

void CompletionCall::Add(size_t index, OutputDelta delta) {
  std::vector<uint64_t> cancelled;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    Part& part = parts_[index];
    part.ended = delta.is_last();
    pending_bytes_ -= part.pending.bytes();
    part.pending.Merge(std::move(delta));
    pending_bytes_ += part.pending.bytes();
    if (request_.stream) {
      if (!sending_) SendPending();
      UpdateHold(part);
    } else if (pending_bytes_ > kMaxWholeBytes) {
      exchange_->Respond(ErrorResponse(absl::OutOfRangeError(
          absl::StrCat("the answer has more than ", kMaxWholeBytes, " bytes; ask for a stream, or for less of it"))));
      cancelled = Close();
    } else if (std::all_of(parts_.begin(), parts_.end(), [](const Part& each) { return each.ended; })) {
      AnswerWhole();
    }
  }
  Cancel(cancelled);
}

void CompletionCall::UpdateHold(Part& part) {
  const bool hold = part.held ? !part.pending.empty() : part.pending.bytes() > kHoldAboveBytes;
  if (hold == part.held) return;
  part.held = hold;
  frontend_.SetHeld(part.handle, hold);
}

void CompletionCall::BeginStream() {
  if (streaming_) return;
  streaming_ = true;
  exchange_->BeginStream(StreamHead(request_));
}

void CompletionCall::SendPending() {
  std::string events;
  for (Part& part : parts_) {
    if (part.pending.empty()) continue;
    events += Events(part, part.pending.Take(kMaxMessageBytes));
    UpdateHold(part);
    if (static_cast<int64_t>(events.size()) > kMaxMessageBytes) break;
  }
  const bool is_end =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.ended && part.pending.empty(); });
  if (events.empty() && !is_end) return;
  BeginStream();
  if (is_end) {
    if (request_.include_usage) {
      const UsageCount usage = TotalUsage();
      events += SseEvent(format_.Object(Json::array(), &usage, /*is_chunk=*/true));
    }
    events += kSseDone;
  }
  sending_ = true;
  last_sent_ = absl::Now();
  exchange_->Write(std::move(events));
  if (!is_end) return;
  exchange_->End();
  Close();
}

std::string CompletionCall::Events(Part& part, OutputDelta delta) {
  if (delta.prompt) {
    part.usage.prompt_tokens = delta.prompt->prompt_tokens;
    part.echo.Append(std::move(*delta.prompt));
  }
  if (delta.usage) {
    part.usage.cached_tokens = delta.usage->cached_tokens;
    part.usage.reasoning_tokens = delta.usage->reasoning_tokens;
    part.usage.drafted_tokens = delta.usage->drafted_tokens;
    part.usage.accepted_tokens = delta.usage->accepted_tokens;
  }
  std::string events;
  for (SequenceDelta& sequence : delta.sequences) {
    if (sequence.index >= static_cast<int32_t>(part.choices.size())) continue;
    const ChoiceState& state = part.choices[sequence.index];
    if (sequence.finish && sequence.finish->reason == FinishReason::kAborted) {
      events += absl::StrCat("data: ", ErrorBody(absl::AbortedError("the request was aborted")), "\n\n");
      continue;
    }
    if (request_.prompt_only) {
      if (!sequence.finish) continue;
      sequence = NothingButTheEnd(sequence.index);
    }
    part.usage.completion_tokens += static_cast<int64_t>(sequence.token_ids.size());
    const bool is_echo = request_.echo && !state.begun;
    const bool has_text = !sequence.text.empty() || !sequence.reasoning.empty() || !sequence.tool_calls.empty();
    if (!has_text && sequence.logprobs.empty() && !sequence.finish && !is_echo &&
        !(request_.return_token_ids && !sequence.token_ids.empty())) {
      continue;  // half a character
    }
    // OpenAI's client takes a call for whole when it sees an event behind it: the end has one of its own.
    SequenceDelta end;
    end.index = sequence.index;
    if (!sequence.tool_calls.empty()) end.finish = std::exchange(sequence.finish, std::nullopt);
    events += Event(part, sequence);
    if (end.finish) events += Event(part, end);
  }
  return events;
}

std::string CompletionCall::Event(Part& part, const SequenceDelta& sequence) {
  ChoiceState& state = part.choices[sequence.index];
  const PromptEcho* const prompt = state.begun ? nullptr : &part.echo;
  const UsageCount usage = TotalUsage();
  return SseEvent(format_.Object(Json::array({format_.Choice(sequence, prompt, &state)}),
                                 request_.continuous_usage ? &usage : nullptr, /*is_chunk=*/true, prompt));
}

void CompletionCall::AnswerWhole() {
  Json choices = Json::array();
  for (Part& part : parts_) {
    OutputDelta delta = part.pending.Take(std::numeric_limits<int64_t>::max());
    if (delta.prompt) {
      part.usage.prompt_tokens = delta.prompt->prompt_tokens;
      part.echo.Append(std::move(*delta.prompt));
    }
    if (delta.usage) {
      part.usage = {delta.usage->prompt_tokens,
                    delta.usage->cached_tokens,
                    request_.prompt_only ? 0 : delta.usage->completion_tokens,
                    delta.usage->reasoning_tokens,
                    delta.usage->drafted_tokens,
                    delta.usage->accepted_tokens};
    }
    std::sort(delta.sequences.begin(), delta.sequences.end(),
              [](const SequenceDelta& a, const SequenceDelta& b) { return a.index < b.index; });
    for (SequenceDelta& sequence : delta.sequences) {
      if (sequence.finish && sequence.finish->reason == FinishReason::kAborted) {
        exchange_->Respond(ErrorResponse(absl::AbortedError("the request was aborted")));
        Close();
        return;
      }
      if (sequence.index >= static_cast<int32_t>(part.choices.size())) continue;
      if (request_.prompt_only) sequence = NothingButTheEnd(sequence.index);
      choices.push_back(format_.Choice(sequence, &part.echo, &part.choices[sequence.index]));
    }
  }
  const UsageCount usage = TotalUsage();
  HttpResponse response;
  response.body = Dump(format_.Object(std::move(choices), &usage, /*is_chunk=*/false, &parts_.front().echo));
  AddHeaders(request_, &response);
  exchange_->Respond(std::move(response));
  Close();
}

UsageCount CompletionCall::TotalUsage() const {
  UsageCount total;
  for (const Part& part : parts_) {
    total.prompt_tokens += part.usage.prompt_tokens;
    total.cached_tokens += part.usage.cached_tokens;
    total.completion_tokens += part.usage.completion_tokens;
    total.reasoning_tokens += part.usage.reasoning_tokens;
    total.drafted_tokens += part.usage.drafted_tokens;
    total.accepted_tokens += part.usage.accepted_tokens;
  }
  return total;
}

void CompletionCall::Fail(const absl::Status& problem) {
  const absl::Status status = request_.WithNames(problem);
  std::vector<uint64_t> cancelled;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (streaming_) {
      exchange_->Write(absl::StrCat("data: ", ErrorBody(status), "\n\n", kSseDone));
      exchange_->End();
    } else {
      exchange_->Respond(ErrorResponse(status));
    }
    cancelled = Close();
  }
  Cancel(cancelled);
}

void CompletionCall::OnSent() {
  MutexLock lock(&mutex_);
  sending_ = false;
  if (!finished_ && request_.stream) SendPending();
}

void CompletionCall::OnGone() {
  std::vector<uint64_t> cancelled;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (streaming_) {
      exchange_->End();
    } else {
      exchange_->Respond(ErrorResponse(absl::CancelledError("the client has gone")));
    }
    cancelled = Close();
  }
  Cancel(cancelled);
}

void CompletionCall::PingIfSilent(absl::Time now, absl::Duration interval) {
  MutexLock lock(&mutex_);
  if (finished_ || sending_ || !request_.stream || now - last_sent_ < interval) return;
  BeginStream();
  sending_ = true;
  last_sent_ = now;
  exchange_->Write(kSsePing);
}

std::vector<uint64_t> CompletionCall::Close() {
  finished_ = true;
  std::vector<uint64_t> live;
  for (Part& part : parts_) {
    if (part.handle != 0 && !part.ended) live.push_back(part.handle);
    part.pending.Clear();
  }
  self_.reset();
  return live;
}

void CompletionCall::Cancel(const std::vector<uint64_t>& handles) {
  for (const uint64_t handle : handles) frontend_.Cancel(handle);
}

}  // namespace quire
