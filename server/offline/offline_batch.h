#pragma once

#include <cstdint>
#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "server/frontend/frontend.h"

namespace quire {

inline constexpr int64_t kMaxOfflineLineBytes = 64 << 20;  // as much as the gRPC port receives

// Answers every request line of `in` by one line in `out`, in order of completion. Requests are handed over as they are
// read, at most `max_in_flight` at once, so that none meets a full queue. Blank lines are skipped; what is wrong with
// one line is the answer to it and stops nothing, and so is a line of more than kMaxOfflineLineBytes. Returns when all
// is answered. Once `out` cannot be written: stops reading and returns kInternal at once, with requests still in
// flight; they go on, unheard, until the front end stops.
absl::Status RunOfflineBatch(Frontend& frontend, std::istream& in, std::ostream& out, int32_t max_in_flight);

}  // namespace quire
