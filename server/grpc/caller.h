#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "server/frontend/api_keys.h"

namespace quire {

// Who a call comes from, by its metadata `authorization` and `x-tenant`. Errors of Identify.
absl::StatusOr<Caller> CallerOf(const grpc::CallbackServerContext& context, const ApiKeyStore* keys);

// OK if the call may be answered: its key is known, and is an admin's if it must be. kPermissionDenied.
absl::Status CheckCaller(const grpc::CallbackServerContext& context, const ApiKeyStore* keys, bool must_be_admin);

}  // namespace quire
