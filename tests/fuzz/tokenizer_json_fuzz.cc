// Any bytes as a tokenizer.json: an error or a tokenizer that encodes and decodes. Seeds: tests/data/tokenizers.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/check.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = quire::LoadTokenizerJson(text);
  if (!tokenizer.ok()) return 0;
  for (const std::string_view sample : {std::string_view("Hello <s>  1234, e\xCC\x81!\n"), text.substr(0, 64)}) {
    const auto ids = (*tokenizer)->Encode(sample, /*add_special_tokens=*/true);
    if (ids.ok()) QUIRE_CHECK(quire::utf8::IsValid((*tokenizer)->Decode(*ids, /*skip_special_tokens=*/false)));
  }
  return 0;
}
