#pragma once

#include <cstdint>

#include "server/frontend/output_sink.h"

namespace quire {

// What a client has not been sent yet: deltas are merged while one message is under way, and cut into messages of
// bounded size again. Not thread-safe.
class PendingOutput {
 public:
  // Deltas of one request, in order; none after the one that is_last().
  void Merge(OutputDelta delta);

  bool empty() const { return empty_; }
  // Upper estimates of the size on the wire: of everything, and of the prompt's echo and log-probabilities among it.
  int64_t bytes() const { return bytes_; }
  int64_t prompt_bytes() const { return prompt_bytes_; }

  // The next message, of at most about `max_bytes` but at least one position; everything if it fits. Prompt positions
  // come before tokens, finish with a sequence's last token, usage with the last message. REQUIRES: !empty().
  OutputDelta Take(int64_t max_bytes);

  void Clear() { *this = PendingOutput(); }

 private:
  void Recount();

  OutputDelta merged_;
  bool empty_ = true;
  int64_t bytes_ = 0, prompt_bytes_ = 0;
};

}  // namespace quire
