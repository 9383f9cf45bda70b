#include "model/tokenizer/incremental_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "model/tokenizer/utf8.h"

namespace quire {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<int32_t> shown)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      shown_(std::move(shown)),
      rules_(tokenizer.join_rules()) {}

void IncrementalDecoder::Continue(absl::Span<const int32_t> prompt) {
  std::string not_sent;
  for (const int32_t id : prompt) {
    Push(id, &not_sent);
    not_sent.clear();
  }
}

void IncrementalDecoder::Push(int32_t id, std::string* text) {
  const bool skipped =
      skip_special_tokens_ && tokenizer_->IsSpecial(id) && std::find(shown_.begin(), shown_.end(), id) == shown_.end();
  if (skipped) return;
  const std::string_view added = is_first_ ? tokenizer_->FirstTokenBytes(id) : tokenizer_->TokenBytes(id);
  if (added.data() == nullptr) return;  // no such token
  is_first_ = false;
  if (!rules_.byte_runs) return PushBytes(added, text);
  if (tokenizer_->IsByte(id)) return PushByte(added[0], text);
  EndRun(text);
  Send(added, text);
}

// Tokens whose bytes follow one another.
void IncrementalDecoder::PushBytes(std::string_view added, std::string* text) {
  std::string joined;
  std::string_view bytes = added;
  if (num_held_ > 0) {
    joined.assign(held_, num_held_);
    joined.append(added);
    bytes = joined;
    num_held_ = 0;
  }
  while (!bytes.empty()) {
    const size_t valid = utf8::ValidPrefix(bytes);
    Send(bytes.substr(0, valid), text);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const utf8::Part part = utf8::NextPart(bytes);
    if (part.unfinished) {
      QUIRE_CHECK(bytes.size() <= sizeof held_);
      std::memcpy(held_, bytes.data(), bytes.size());
      num_held_ = static_cast<int>(bytes.size());
      return;
    }
    Replace(1, text);
    bytes.remove_prefix(part.size);
  }
}

// One token of a run of byte tokens.
void IncrementalDecoder::PushByte(char byte, std::string* text) {
  if (broken_run_) return Replace(1, text);
  held_[num_held_++] = byte;
  const std::string_view held(held_, num_held_);
  const utf8::Part part = utf8::NextPart(held);
  if (part.unfinished) return;
  if (part.whole) {
    Send(held, text);
  } else {
    Replace(held.size(), text);
    broken_run_ = true;
  }
  num_held_ = 0;
}

void IncrementalDecoder::EndRun(std::string* text) {
  Replace(num_held_, text);
  num_held_ = 0;
  broken_run_ = false;
}

void IncrementalDecoder::Replace(size_t count, std::string* text) {
  for (size_t i = 0; i < count; ++i) Send(utf8::kReplacement, text);
}

// Whole characters; the first of the text may be taken away.
void IncrementalDecoder::Send(std::string_view piece, std::string* text) {
  while (rules_.strip_count > 0 && !piece.empty()) {
    if (!piece.starts_with(rules_.strip)) {
      rules_.strip_count = 0;
    } else {
      piece.remove_prefix(rules_.strip.size());
      --rules_.strip_count;
    }
  }
  text->append(piece);
}

void IncrementalDecoder::Flush(std::string* text) {
  if (rules_.byte_runs) return EndRun(text);
  // What is held is the beginning of one character: one maximal subpart.
  Replace(num_held_ > 0 ? 1 : 0, text);
  num_held_ = 0;
}

}  // namespace quire
