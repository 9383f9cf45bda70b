#include "model/tokenizer/incremental_decoder.h"

#include <cstring>

#include "kernels/base/check.h"
#include "model/tokenizer/utf8.h"

namespace quire {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

void IncrementalDecoder::Push(int32_t id, std::string* text) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return;
  const std::string_view added = tokenizer_->TokenBytes(id);
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
    text->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const utf8::Part part = utf8::NextPart(bytes);
    if (part.unfinished) {
      QUIRE_CHECK(bytes.size() <= sizeof held_);
      std::memcpy(held_, bytes.data(), bytes.size());
      num_held_ = static_cast<int>(bytes.size());
      return;
    }
    text->append(utf8::kReplacement);
    bytes.remove_prefix(part.size);
  }
}

void IncrementalDecoder::Flush(std::string* text) {
  // What is held is the beginning of one character: one maximal subpart.
  if (num_held_ > 0) text->append(utf8::kReplacement);
  num_held_ = 0;
}

}  // namespace quire
