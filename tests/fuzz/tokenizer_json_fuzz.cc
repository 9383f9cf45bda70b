// Any bytes as a tokenizer.json: an error or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/check.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/utf8.h"

namespace {

void Use(const quire::Tokenizer& tokenizer, std::string_view text) {
  const auto encoding = tokenizer.EncodeWith(text, {.with_offsets = true});
  if (!encoding.ok()) return;
  QUIRE_CHECK(encoding->offsets.size() == encoding->ids.size());
  for (const auto& [begin, end] : encoding->offsets) QUIRE_CHECK(begin <= end && end <= text.size());
  for (const int32_t id : encoding->ids) QUIRE_CHECK(id >= 0 && id < tokenizer.vocab_size());
  QUIRE_CHECK(quire::utf8::IsValid(tokenizer.Decode(encoding->ids, /*skip_special_tokens=*/false)));

  const auto ids = tokenizer.Encode(text, /*add_special_tokens=*/true);
  QUIRE_CHECK(ids.ok() && *ids == encoding->ids);
  const auto cut = tokenizer.EncodeWith(text, {.max_tokens = 5, .keep = quire::EncodeOptions::Keep::kLast});
  if (cut.ok()) QUIRE_CHECK(cut->ids.size() <= 5);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = quire::LoadTokenizerJson(text);
  if (!tokenizer.ok()) return 0;
  Use(**tokenizer, "Hello <s>  1234, e\xCC\x81!\n");
  Use(**tokenizer, text.substr(0, 64));
  return 0;
}
