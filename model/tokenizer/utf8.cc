#include "model/tokenizer/utf8.h"

#include <cstring>

namespace quire::utf8 {
namespace {

uint8_t At(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Bytes of the character that `lead` begins; 0 if it begins none.
size_t LengthOf(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Only the second byte's range depends on the lead.
bool IsSecond(uint8_t lead, uint8_t byte) {
  switch (lead) {
    case 0xE0:
      return byte >= 0xA0 && byte <= 0xBF;
    case 0xED:
      return byte >= 0x80 && byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90 && byte <= 0xBF;
    case 0xF4:
      return byte >= 0x80 && byte <= 0x8F;
    default:
      return byte >= 0x80 && byte <= 0xBF;
  }
}

}  // namespace

Part NextPart(std::string_view text) {
  const uint8_t lead = At(text, 0);
  const size_t length = LengthOf(lead);
  if (length == 0) return {.size = 1};
  size_t have = 1;
  while (have < length && have < text.size()) {
    const uint8_t byte = At(text, have);
    if (have == 1 ? !IsSecond(lead, byte) : (byte & 0xC0) != 0x80) return {.size = have};
    ++have;
  }
  return {.size = have, .whole = have == length, .unfinished = have < length};
}

size_t ValidPrefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight;
    if (text.size() - i >= sizeof eight) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const Part part = NextPart(text.substr(i));
    if (!part.whole) return i;
    i += part.size;
  }
  return i;
}

void AppendLossy(std::string_view bytes, std::string* text) {
  while (!bytes.empty()) {
    const size_t valid = ValidPrefix(bytes);
    text->append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    text->append(kReplacement);
    bytes.remove_prefix(NextPart(bytes).size);
  }
}

char32_t Decode(std::string_view text, size_t* offset) {
  const uint8_t lead = At(text, *offset);
  const size_t length = LengthOf(lead);
  char32_t code_point = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (At(text, *offset + i) & 0x3Fu);
  *offset += length;
  return code_point;
}

void Append(char32_t c, std::string* text) {
  const auto put = [&](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace quire::utf8
