#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/http/http_message.h"

// Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}}, the HTTP status in `code`.
namespace quire {

// The HTTP status of a failed request. Ours and the device's faults (kInternal, kDataLoss, kUnknown) are 500.
int HttpStatusOf(const absl::Status& status);

// The object of "error" as JSON text; what our own faults say stays in the log, under an id that the client gets.
std::string ErrorBody(const absl::Status& status);

// The whole answer, with Retry-After and x-should-retry where they help.
HttpResponse ErrorResponse(const absl::Status& status);
// For what HTTP itself finds wrong.
HttpResponse ErrorResponse(int status, const std::string& message);

}  // namespace quire
