// Any bytes as the body of an HTTP request: an error that names what is wrong, or requests that the validator takes or
// refuses. Seeds: bodies of tests/server/http_completions_test.cc.
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/check.h"
#include "server/frontend/validator.h"
#include "server/http/completion_request.h"
#include "server/http/http_errors.h"
#include "server/http/json_fields.h"

namespace quire {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.served_model_names = {"m"};
  limits.vocab_size = 1000;
  limits.max_model_len = 512;
  limits.max_text_bytes = 1 << 16;
  return limits;
}

// A client hears of it in JSON.
void CheckError(const absl::Status& status) {
  const int code = HttpStatusOf(status);
  QUIRE_CHECK(code >= 400 && code < 500);
  QUIRE_CHECK(ParseBody(ErrorBody(status)).ok());
}

void Use(const std::string& bytes) {
  static const Validator validator(Limits());
  const absl::StatusOr<Json> body = ParseBody(bytes);
  if (!body.ok()) return CheckError(body.status());
  absl::StatusOr<CompletionRequest> request = ParseCompletionRequest(HttpRequest(), *body);
  if (!request.ok()) return CheckError(request.status());
  QUIRE_CHECK(!request->prompts.empty());
  for (GenerateRequest& prompt : request->prompts) {
    const absl::StatusOr<ValidatedRequest> valid = validator.Validate(std::move(prompt));
    if (!valid.ok()) CheckError(valid.status());
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::Use(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
