#pragma once

#include "absl/status/status.h"

namespace quire {

// Exit codes of quired and quire_offline, after sysexits.h.
inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 64;        // the command line cannot be read
inline constexpr int kExitModel = 66;        // anything wrong in the model's files
inline constexpr int kExitUnavailable = 69;  // port or device
inline constexpr int kExitInternal = 70;
inline constexpr int kExitConfig = 78;  // anything wrong in our options or their file

// Of an error of CreateEngine or GrpcServer::Start.
constexpr int ExitCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
      return kExitModel;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnimplemented:
      return kExitUnavailable;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:  // the options want more memory than there is
      return kExitConfig;
    default:
      return kExitInternal;
  }
}

}  // namespace quire
