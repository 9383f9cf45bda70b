#include "server/daemon/logging.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "spdlog/formatter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

// A client chooses its request ids: none of them may forge a line.
std::string WithoutControls(const std::string& text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(&out, absl::StrFormat("\\x%02x", byte));
    } else {
      out += c;
    }
  }
  return out;
}

class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(bool json) : json_(json) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string time =
        absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
    const auto level_view = spdlog::level::to_string_view(message.level);
    const std::string level(level_view.data(), level_view.size());
    const std::string text(message.payload.data(), message.payload.size());
    std::string line;
    if (json_) {
      const nlohmann::ordered_json object = {{"time", time}, {"level", level}, {"message", text}};
      line = object.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
    } else {
      line = absl::StrCat(time, " ", level, " ", WithoutControls(text));
    }
    line += '\n';
    out.append(line.data(), line.data() + line.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<LineFormatter>(json_); }

 private:
  const bool json_;
};

}  // namespace

void SetUpLogging(const std::string& level, bool json) {
  auto logger = spdlog::stderr_logger_mt("quired");
  logger->set_formatter(std::make_unique<LineFormatter>(json));
  logger->set_level(spdlog::level::from_str(level == "warn" ? "warning" : level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void LogRequest(const RequestRecord& record) {
  const Timings& t = record.timings;
  std::string outcome = absl::StatusCodeToString(record.code);
  // The text of our own faults is logged once already, with the id that the client got.
  if (!record.error.empty() && record.code != absl::StatusCode::kInternal) outcome += " (" + record.error + ")";
  spdlog::info(
      "request id={} status={} finish={} prompt_tokens={} cached_tokens={} completion_tokens={} queue_ms={:.1f} "
      "prefill_ms={:.1f} decode_ms={:.1f} total_ms={:.1f} preemptions={}",
      record.request_id, outcome, record.finish.empty() ? "-" : record.finish, record.usage.prompt_tokens,
      record.usage.cached_tokens, record.usage.completion_tokens, absl::ToDoubleMilliseconds(t.queue),
      absl::ToDoubleMilliseconds(t.prefill), absl::ToDoubleMilliseconds(t.decode), absl::ToDoubleMilliseconds(t.total),
      t.preemptions);
}

}  // namespace quire
