#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

// Turns a stream of ids into a stream of text that never ends inside a character: sends everything up to the last point
// where no byte sequence is still completable, holds an unfinished but completable one, and sends U+FFFD at once for
// bytes that can no longer become a character (Unicode 15, table 3-7; one per maximal subpart). With
// JoinRules::byte_runs a run of byte tokens that is broken gives one U+FFFD a byte, but for characters that were sent
// before it broke. One per stream; not thread-safe. The tokenizer must outlive it.
class IncrementalDecoder {
 public:
  // `shown`: special tokens that are not skipped all the same.
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<int32_t> shown = {});

  // The stream goes on after `prompt`, which is not sent: what decoding the two together has more than the prompt
  // alone. Before the first Push.
  void Continue(absl::Span<const int32_t> prompt);

  // Appends to *text what id adds.
  void Push(int32_t id, std::string* text);
  // Appends what was held, as U+FFFD; the stream is over.
  void Flush(std::string* text);

 private:
  void PushBytes(std::string_view bytes, std::string* text);
  void PushByte(char byte, std::string* text);
  void EndRun(std::string* text);
  void Replace(size_t count, std::string* text);
  void Send(std::string_view piece, std::string* text);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> shown_;
  JoinRules rules_;
  bool is_first_ = true;     // no token yet
  bool broken_run_ = false;  // each byte of this run is U+FFFD from now on
  char held_[4];
  int num_held_ = 0;
};

}  // namespace quire
