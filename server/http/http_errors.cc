#include "server/http/http_errors.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/frontend/errors.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

const char* TypeOf(int status) {
  switch (status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 409:
      return "ConflictError";
    case 429:
      return "RateLimitError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

std::string Body(int status, const std::string& message, const std::optional<std::string>& field) {
  const Json error = {{"message", message},
                      {"type", TypeOf(status)},
                      {"param", field ? Json(*field) : Json(nullptr)},
                      {"code", status}};
  return Json({{"error", error}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The front end names fields as the gRPC messages nest them; here they stand side by side, some under other names.
std::string NameHere(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kGroups[] = {{"sampling.beam_search.width", "beam_width"},
                                                                       {"sampling.beam_search.", ""},
                                                                       {"sampling.dry.last_n", "dry_penalty_last_n"},
                                                                       {"sampling.dry.", "dry_"},
                                                                       {"sampling.dynamic_temperature.", "dynatemp_"},
                                                                       {"sampling.xtc.", "xtc_"},
                                                                       {"sampling.mirostat.", "mirostat_"},
                                                                       {"sampling.", ""},
                                                                       {"stopping.", ""},
                                                                       {"output.", ""},
                                                                       {"cache.salt", "cache_salt"},
                                                                       {"token_ids.ids[", "prompt["},
                                                                       {"text: ", "prompt: "},
                                                                       {"ids[", "tokens["}};
  if (text == "text") return "prompt";
  for (const auto& [group, here] : kGroups) {
    if (text.substr(0, group.size()) == group) return std::string(here) + std::string(text.substr(group.size()));
  }
  return std::string(text);
}

// What is wrong with us is for the log; a client gets its number.
std::string Message(const absl::Status& status) {
  if (HttpStatusOf(status) != 500 || status.code() == absl::StatusCode::kFailedPrecondition)
    return NameHere(std::string_view(status.message().data(), status.message().size()));
  std::random_device random;
  const std::string id = absl::StrFormat("%08x%08x", random(), random());
  spdlog::error("internal error {}: {}", id, std::string(status.message()));
  return "internal error " + id + "; the server's log says more";
}

}  // namespace

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return 499;  // ended from outside, by the client or by an Abort
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorBody(const absl::Status& status) {
  std::optional<std::string> field = FieldOf(status);
  if (field) field = NameHere(*field);
  return Body(HttpStatusOf(status), Message(status), field);
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response;
  response.status = HttpStatusOf(status);
  response.body = ErrorBody(status);
  if (const auto delay = RetryDelayOf(status)) {
    const int64_t ms = std::max<int64_t>(absl::ToInt64Milliseconds(*delay), 0);
    response.headers.emplace_back("Retry-After", absl::StrCat((ms + 999) / 1000));
    response.headers.emplace_back("Retry-After-Ms", absl::StrCat(ms));
  }
  if (status.code() == absl::StatusCode::kUnauthenticated) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  // The same request would meet the same numbers again: a NaN is no accident of this server.
  if (status.code() == absl::StatusCode::kFailedPrecondition || status.code() == absl::StatusCode::kAborted)
    response.headers.emplace_back("X-Should-Retry", "false");
  return response;
}

HttpResponse ErrorResponse(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  response.body = Body(status, message, std::nullopt);
  return response;
}

}  // namespace quire
