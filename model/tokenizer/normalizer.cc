#include "model/tokenizer/normalizer.h"

#include "model/tokenizer/unicode.h"

namespace quire {

void NfcNormalizer::Normalize(std::string* text) const { *text = NormalizeNfc(*text); }

void SequenceNormalizer::Normalize(std::string* text) const {
  for (const auto& part : parts_) part->Normalize(text);
}

}  // namespace quire
