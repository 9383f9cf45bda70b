#include "server/grpc/answer.h"

#include "server/frontend/errors.h"
#include "server/grpc/caller.h"
#include "server/grpc/status_details.h"

namespace quire {

grpc::Status LoadingStatus() {
  return ToGrpcStatus(RetryAfter(absl::UnavailableError("the model is still loading"), absl::Seconds(1)));
}

Frontend* AdmitCaller(const grpc::CallbackServerContext& context, Frontend* frontend, bool must_be_admin,
                      grpc::Status* refusal) {
  if (frontend == nullptr) {
    *refusal = LoadingStatus();
    return nullptr;
  }
  const absl::Status allowed = CheckCaller(context, frontend->options().keys, must_be_admin);
  *refusal = ToGrpcStatus(allowed);
  return allowed.ok() ? frontend : nullptr;
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace quire
