#include "server/grpc/answer.h"

#include "server/frontend/errors.h"
#include "server/grpc/status_details.h"

namespace quire {

grpc::Status LoadingStatus() {
  return ToGrpcStatus(RetryAfter(absl::UnavailableError("the model is still loading"), absl::Seconds(1)));
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace quire
