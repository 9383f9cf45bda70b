#pragma once

#include <string>

#include "server/frontend/frontend.h"

namespace quire {

// Sends spdlog's default logger to stderr, one line an event. `level`: trace, debug, info, warn, error or off. As JSON:
// {"time":"2026-01-31T12:00:00.123456Z","level":"info","message":"..."}. Control characters never reach the log as
// such.
void SetUpLogging(const std::string& level, bool json);

// The access line of a request: ids, counts, times and outcome; never text of prompt or answer.
void LogRequest(const RequestRecord& record);

}  // namespace quire
