#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace quire {

// The status a client gets. Fields and retry advice of server/frontend/errors.h travel as google.rpc.BadRequest and
// google.rpc.RetryInfo in the trailer grpc-status-details-bin. What is our own fault (kInternal, kUnknown, kDataLoss)
// becomes an opaque INTERNAL whose id is also in the log beside the message.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace quire
