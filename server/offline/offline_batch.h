#pragma once

#include <istream>
#include <ostream>

#include "absl/status/status.h"
#include "server/frontend/frontend.h"

namespace quire {

// Answers every request line of `in` by one line in `out`, in order of completion. Requests are handed over as they are
// read, at most `max_in_flight` at once, so that none meets a full queue. Blank lines are skipped; what is wrong with
// one line is the answer to it and stops nothing. Returns when all is answered; kInternal if `out` cannot be written.
absl::Status RunOfflineBatch(Frontend& frontend, std::istream& in, std::ostream& out, int32_t max_in_flight);

}  // namespace quire
