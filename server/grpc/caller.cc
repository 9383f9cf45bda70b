#include "server/grpc/caller.h"

#include <string_view>

namespace quire {
namespace {

std::string_view Metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

absl::StatusOr<Caller> CallerOf(const grpc::CallbackServerContext& context, const ApiKeyStore* keys) {
  return Identify(keys, Metadata(context, "authorization"), Metadata(context, "x-tenant"));
}

absl::Status CheckCaller(const grpc::CallbackServerContext& context, const ApiKeyStore* keys, bool must_be_admin) {
  const absl::StatusOr<Caller> caller = CallerOf(context, keys);
  if (!caller.ok()) return caller.status();
  if (must_be_admin && !caller->is_admin) return absl::PermissionDeniedError("this needs the API key of an admin");
  return absl::OkStatus();
}

}  // namespace quire
