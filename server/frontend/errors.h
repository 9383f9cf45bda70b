#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace quire {

// Errors with what a client's program can read beside the message; the gRPC side turns both into google.rpc details.

// kInvalidArgument "<field>: <problem>"; `field` is the path in the request, "sampling.top_p".
absl::Status InvalidField(const std::string& field, const std::string& problem);
// Another error that is about a field, whose message stays as it is.
absl::Status WithField(absl::Status status, const std::string& field);
// `status`, if it is of InvalidField and about `field`, as one about `other`; else as it is.
absl::Status RenamedField(const absl::Status& status, const std::string& field, const std::string& other);
// The field of an error that these made.
std::optional<std::string> FieldOf(const absl::Status& status);

// A client's text for a message: in quotes, at most 256 bytes of it; '?' for what is not UTF-8.
std::string Quoted(const std::string& text);

// `status` with advice to try again after `delay`.
absl::Status RetryAfter(absl::Status status, absl::Duration delay);
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

}  // namespace quire
