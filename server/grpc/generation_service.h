#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/generation.grpc.pb.h"
#include "server/frontend/frontend.h"
#include "server/grpc/convert.h"
#include "server/grpc/stream_watch.h"

namespace quire {

// quire.v1.Generation over a front end. Handlers check, hand over and return: gRPC has about one thread a core for
// them.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  explicit GenerationService(ServedModel served) : served_(std::move(served)), started_(absl::Now()) {}

  // Until then every call gets UNAVAILABLE with RetryInfo. `frontend` must outlive the server.
  void SetFrontend(Frontend* frontend) { frontend_.store(frontend, std::memory_order_release); }
  StreamWatch& streams() { return streams_; }

  grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateStream(grpc::CallbackServerContext* context,
                                                                 const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* Fork(grpc::CallbackServerContext* context,
                                                       const v1::ForkRequest* request) override;
  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* ChatStream(grpc::CallbackServerContext* context,
                                                             const v1::ChatRequest* request) override;
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context, const v1::ChatRequest* request,
                                 v1::GenerateResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const v1::GetModelInfoRequest* request,
                                         v1::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const v1::GetStatsRequest* request,
                                     v1::GetStatsResponse* response) override;

 private:
  // Whom to ask; null with what to answer instead: the model loads, or the caller has no key.
  Frontend* Admit(const grpc::CallbackServerContext& context, grpc::Status* refusal) const;
  // Answers at once with what `body` says, or with the refusal.
  grpc::ServerUnaryReactor* AnswerNow(grpc::CallbackServerContext* context,
                                      const std::function<absl::Status(Frontend&)>& body);

  const ServedModel served_;
  const absl::Time started_;
  std::atomic<Frontend*> frontend_ = nullptr;
  StreamWatch streams_;
};

}  // namespace quire
