#pragma once

#include "grpcpp/grpcpp.h"
#include "server/frontend/frontend.h"

namespace quire {

// What every call gets until the model is loaded.
grpc::Status LoadingStatus();

// `frontend`, unless it is null since the model loads or the caller must not ask: then null, and *refusal says why.
Frontend* AdmitCaller(const grpc::CallbackServerContext& context, Frontend* frontend, bool must_be_admin,
                      grpc::Status* refusal);

// Ends a unary call at once; its response has been filled if it needs to be.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::Status& status);

// A stream that says nothing but its status.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace quire
