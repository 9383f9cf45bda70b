#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "quire/v1/generation.grpc.pb.h"

namespace quire::cli {

// A Generation service that answers by rules which a test can foresee. For a prompt of
//   "fail"       INVALID_ARGUMENT with a BadRequest and a RetryInfo
//   "endless"    messages until the client goes away
//   "interrupt"  the same, and SIGINT to this process after the first
// and of anything else `max_tokens` messages (unset: 3) of one token for each of n sequences: id 10 * sequence + i,
// text "s.i ". Requests whose seed is in `failing_seeds` fail with UNAVAILABLE.
class FakeGeneration : public v1::Generation::Service {
 public:
  std::set<int64_t> failing_seeds;

  v1::GenerateRequest last_request() {
    absl::MutexLock lock(&mutex_);
    return requests_.back();
  }
  std::vector<v1::GenerateRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  int num_unary() {  // calls of Generate
    absl::MutexLock lock(&mutex_);
    return num_unary_;
  }
  int max_running() {
    absl::MutexLock lock(&mutex_);
    return max_running_;
  }
  std::vector<std::string> aborted;
  bool cancelled = false;

  grpc::Status GenerateStream(grpc::ServerContext* context, const v1::GenerateRequest* request,
                              grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    const Running running(*this, *request);
    if (request->text() == "fail") return Failure();
    if (failing_seeds.count(request->sampling().seed()) > 0) return {grpc::StatusCode::UNAVAILABLE, "draining"};
    if (request->text() == "endless" || request->text() == "interrupt") {
      v1::GenerateResponse message;
      AddToken(0, 0, *request, &message);
      writer->Write(message);
      if (request->text() == "interrupt") std::raise(SIGINT);
      while (writer->Write(message)) {
      }
      cancelled = context->IsCancelled();
      return grpc::Status::OK;
    }
    const int count = MaxTokens(*request);
    for (int i = 0; i < count; ++i) writer->Write(Message(*request, i, i + 1));
    return grpc::Status::OK;
  }

  grpc::Status Fork(grpc::ServerContext* context, const v1::ForkRequest* request,
                    grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      absl::MutexLock lock(&mutex_);
      last_fork_ = *request;
    }
    return GenerateStream(context, &request->request(), writer);
  }
  v1::ForkRequest last_fork() {
    absl::MutexLock lock(&mutex_);
    return last_fork_;
  }

  // Says "<number of messages>: <content of the last one>" after some reasoning, and calls each tool after a "call";
  // "fail" as above.
  grpc::Status ChatStream(grpc::ServerContext*, const v1::ChatRequest* request,
                          grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    {
      absl::MutexLock lock(&mutex_);
      last_chat_ = *request;
    }
    const std::string& last = request->messages(request->messages_size() - 1).content();
    if (last == "fail") return Failure();
    v1::GenerateResponse message;
    message.add_sequences()->set_reasoning("hm");
    writer->Write(message);
    message.mutable_sequences(0)->clear_reasoning();
    message.mutable_sequences(0)->set_text(absl::StrCat(request->messages_size(), ": "));
    writer->Write(message);
    message.mutable_sequences(0)->set_text(last);
    message.mutable_sequences(0)->mutable_finish()->set_reason(v1::Finish::REASON_STOP);
    for (const v1::Tool& tool : request->tools()) {
      if (last != "call") continue;
      v1::ToolCall* const call = message.mutable_sequences(0)->add_tool_calls();
      call->set_id(absl::StrCat("call-", tool.name()));
      call->set_name(tool.name());
      call->set_arguments_json("{\"a\":1}");
    }
    message.mutable_usage()->set_prompt_tokens(10 * request->messages_size());
    message.mutable_usage()->set_cached_tokens(3);
    message.mutable_usage()->set_completion_tokens(2);
    writer->Write(message);
    return grpc::Status::OK;
  }
  v1::ChatRequest last_chat() {
    absl::MutexLock lock(&mutex_);
    return last_chat_;
  }

  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        v1::GenerateResponse* response) override {
    const Running running(*this, *request);
    NoteUnary();
    if (request->text() == "fail") return Failure();
    *response = Message(*request, 0, MaxTokens(*request));
    return grpc::Status::OK;
  }

  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (request->add_special_tokens()) response->add_ids(1);
    for (unsigned char byte : request->text()) response->add_ids(byte);
    response->set_max_model_len(4096);
    return grpc::Status::OK;
  }

  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    for (uint32_t id : request->ids()) {
      if (id != 1 || !request->skip_special_tokens()) absl::StrAppend(response->mutable_text(), "<", id, ">");
    }
    return grpc::Status::OK;
  }

  grpc::Status Abort(grpc::ServerContext*, const v1::AbortRequest* request, v1::AbortResponse*) override {
    aborted.assign(request->request_ids().begin(), request->request_ids().end());
    return grpc::Status::OK;
  }

  grpc::Status GetModelInfo(grpc::ServerContext*, const v1::GetModelInfoRequest*,
                            v1::GetModelInfoResponse* response) override {
    response->set_model("fake");
    response->add_served_names("fake");
    response->set_architecture("LlamaForCausalLM");
    response->set_vocab_size(1000);
    response->set_max_model_len(4096);
    response->set_block_size(16);
    response->set_kv_blocks(99);
    response->add_eos_token_ids(2);
    return grpc::Status::OK;
  }

  grpc::Status GetStats(grpc::ServerContext*, const v1::GetStatsRequest*, v1::GetStatsResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++num_stats_;
    response->set_healthy(true);
    response->set_uptime_seconds(num_stats_);
    response->set_steps(10 * num_stats_);
    response->set_generation_tokens(500 * num_stats_);
    response->set_prefix_query_tokens(200);
    response->set_prefix_hit_tokens(50);
    response->set_requests_running(3);
    response->set_requests_held(2);
    response->set_kv_blocks_total(8);
    response->set_kv_blocks_active(2);
    v1::StepSeconds* step = response->mutable_total_step_seconds();
    step->set_linear(0.06 * num_stats_);
    step->set_attention(0.03 * num_stats_);
    step->set_rest(0.01 * num_stats_);
    step->set_total(0.1 * num_stats_);
    *response->mutable_last_step_seconds() = *step;
    return grpc::Status::OK;
  }

 private:
  // Counts calls in progress and keeps their requests.
  class Running {
   public:
    Running(FakeGeneration& service, const v1::GenerateRequest& request) : service_(service) {
      absl::MutexLock lock(&service_.mutex_);
      service_.requests_.push_back(request);
      service_.max_running_ = std::max(service_.max_running_, ++service_.num_running_);
    }
    ~Running() {
      absl::MutexLock lock(&service_.mutex_);
      --service_.num_running_;
    }

   private:
    FakeGeneration& service_;
  };

  void NoteUnary() {
    absl::MutexLock lock(&mutex_);
    ++num_unary_;
  }

  static grpc::Status Failure() {
    google::rpc::BadRequest bad_request;
    google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
    violation->set_field("sampling.top_p");
    violation->set_description("is 2; allowed (0, 1]");
    violation = bad_request.add_field_violations();  // repeats the field, and the message repeats it
    violation->set_field("n");
    violation->set_description("n: is 65; allowed [1, 64]");
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1);
    retry.mutable_retry_delay()->set_nanos(500000000);
    google::rpc::Status status;
    status.add_details()->PackFrom(bad_request);
    status.add_details()->PackFrom(retry);
    return {grpc::StatusCode::INVALID_ARGUMENT, "n: is 65; allowed [1, 64]", status.SerializeAsString()};
  }

  static int MaxTokens(const v1::GenerateRequest& request) {
    return request.stopping().has_max_tokens() ? static_cast<int>(request.stopping().max_tokens()) : 3;
  }

  static void AddToken(int sequence, int i, const v1::GenerateRequest& request, v1::GenerateResponse* message) {
    v1::SequenceDelta* delta = message->add_sequences();
    delta->set_index(sequence);
    delta->set_text(absl::StrCat(sequence, ".", i, " "));
    delta->add_token_ids(10 * sequence + i);
    if (request.output().has_logprobs()) {
      v1::TokenLogprobs* logprobs = delta->add_logprobs();
      logprobs->set_logprob(-0.5F);
      logprobs->set_rank(1);
      v1::TokenLogprob* top = logprobs->add_top();
      top->set_token_id(10 * sequence + i);
      top->set_logprob(-0.5F);
    }
  }

  // Tokens [begin, end) of all sequences; first and last message carry what they must.
  static v1::GenerateResponse Message(const v1::GenerateRequest& request, int begin, int end) {
    v1::GenerateResponse message;
    message.set_request_id(request.request_id());
    const int sequences = request.sampling().has_n() ? static_cast<int>(request.sampling().n()) : 1;
    const int prompt_tokens = request.has_token_ids() ? request.token_ids().ids_size() : 2;
    if (begin == 0) {
      message.mutable_prompt()->set_prompt_tokens(prompt_tokens);
      message.mutable_prompt()->set_seed(42);
    }
    const bool last = end == MaxTokens(request);
    for (int s = 0; s < sequences; ++s) {
      for (int i = begin; i < end; ++i) AddToken(s, i, request, &message);
      if (last)
        message.mutable_sequences(message.sequences_size() - 1)
            ->mutable_finish()
            ->set_reason(v1::Finish::REASON_LENGTH);
    }
    if (last) {
      message.mutable_usage()->set_prompt_tokens(prompt_tokens);
      message.mutable_usage()->set_completion_tokens(end * sequences);
      message.mutable_timings()->set_total(0.25);
    }
    return message;
  }

  absl::Mutex mutex_;
  v1::ForkRequest last_fork_;
  v1::ChatRequest last_chat_;
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  int max_running_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_unary_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_stats_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The fake behind a real port of the loopback interface, with gRPC's own health service.
class FakeServer {
 public:
  FakeServer() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeServer() { Stop(); }

  void Stop() { server_->Shutdown(gpr_time_0(GPR_CLOCK_REALTIME)); }
  void SetServing(const std::string& name, bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(name, serving);
  }
  const std::string& address() const { return address_; }

  FakeGeneration service;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace quire::cli
