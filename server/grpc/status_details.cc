#include "server/grpc/status_details.h"

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/frontend/errors.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

bool IsOurFault(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

grpc::Status Opaque(const absl::Status& status) {
  std::random_device random;
  const std::string id = absl::StrFormat("%08x%08x", random(), random());
  spdlog::error("internal error {}: {}", id, std::string(status.message()));
  return {grpc::StatusCode::INTERNAL, "internal error " + id + "; the server's log says more"};
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  if (IsOurFault(status.code())) return Opaque(status);
  // Both enumerations have the numbers of the canonical codes.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());

  google::rpc::Status details;
  if (const auto field = FieldOf(status); field && absl::IsInvalidArgument(status)) {
    google::rpc::BadRequest bad_request;
    google::rpc::BadRequest::FieldViolation* violation = bad_request.add_field_violations();
    violation->set_field(*field);
    violation->set_description(message);
    details.add_details()->PackFrom(bad_request);
  }
  if (const auto delay = RetryDelayOf(status)) {
    google::rpc::RetryInfo retry;
    const int64_t nanos = absl::ToInt64Nanoseconds(*delay);
    retry.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
    details.add_details()->PackFrom(retry);
  }
  if (details.details().empty()) return {code, message};
  details.set_code(static_cast<int32_t>(code));
  details.set_message(message);
  return {code, message, details.SerializeAsString()};
}

}  // namespace quire
