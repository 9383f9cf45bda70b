#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace quire {

// Errors with what a client's program can read beside the message; the gRPC side turns both into google.rpc details.

// kInvalidArgument "<field>: <problem>"; `field` is the path in the request, "sampling.top_p".
absl::Status InvalidField(const std::string& field, const std::string& problem);
// The field of an error that InvalidField made.
std::optional<std::string> FieldOf(const absl::Status& status);

// A client's text for a message: in quotes, at most 256 bytes of it; '?' for what is not UTF-8.
std::string Quoted(const std::string& text);

// `status` with advice to try again after `delay`.
absl::Status RetryAfter(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace quire
