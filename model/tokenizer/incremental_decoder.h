#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

// Turns a stream of ids into a stream of text that never ends inside a character: sends everything up to the last point
// where no byte sequence is still completable, holds an unfinished but completable one, and sends U+FFFD at once for
// bytes that can no longer become a character (Unicode 15, table 3-7; one per maximal subpart).
// One per stream; not thread-safe. The tokenizer must outlive it.
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);

  // Appends to *text what id adds.
  void Push(int32_t id, std::string* text);
  // Appends what was held, as U+FFFD; the stream is over.
  void Flush(std::string* text);

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  char held_[4];
  int num_held_ = 0;
};

}  // namespace quire
