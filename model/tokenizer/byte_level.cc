#include "model/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "model/tokenizer/utf8.h"

namespace quire::byte_level {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;

constexpr bool IsItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};  // -1: not in the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet a;
  for (int16_t& byte : a.byte) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int c = IsItself(byte) ? byte : next++;
    a.character[byte] = static_cast<char16_t>(c);
    a.byte[c] = static_cast<int16_t>(byte);
  }
  return a;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

void AppendSpelling(std::string_view bytes, std::string* spelling) {
  for (const char byte : bytes) utf8::Append(kAlphabet.character[static_cast<uint8_t>(byte)], spelling);
}

size_t SpelledSize(char byte) { return kAlphabet.character[static_cast<uint8_t>(byte)] < 0x80 ? 1 : 2; }

bool AppendBytes(std::string_view spelling, std::string* bytes) {
  for (size_t i = 0; i < spelling.size();) {
    const char32_t c = utf8::Decode(spelling, &i);
    if (c >= kAlphabetEnd || kAlphabet.byte[c] < 0) return false;
    bytes->push_back(static_cast<char>(kAlphabet.byte[c]));
  }
  return true;
}

std::string BytesOf(std::string_view spelling) {
  std::string bytes;
  return AppendBytes(spelling, &bytes) ? bytes : std::string(spelling);
}

}  // namespace quire::byte_level
