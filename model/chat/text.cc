#include "model/chat/text.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace quire::jinja {
namespace {

bool Contains(std::string_view chars, char32_t wanted) {
  for (size_t i = 0; i < chars.size();) {
    if (DecodeAt(chars, &i) == wanted) return true;
  }
  return false;
}

size_t PreviousChar(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80);
  return offset;
}

std::vector<std::string> SplitSpace(std::string_view text, int64_t max_splits) {
  std::vector<std::string> parts;
  text = Strip(text, nullptr, true, false);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.emplace_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (IsSpace(DecodeAt(text, &next))) break;
      end = next;
    }
    parts.emplace_back(text.substr(0, end));
    text = Strip(text.substr(end), nullptr, true, false);
  }
  return parts;
}

std::vector<std::string> SplitSpaceFromRight(std::string_view text, int64_t max_splits) {
  std::vector<std::string> parts;
  text = Strip(text, nullptr, false, true);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.emplace_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      const size_t previous = PreviousChar(text, start);
      size_t next = previous;
      if (IsSpace(DecodeAt(text, &next))) break;
      start = previous;
    }
    parts.emplace_back(text.substr(start));
    text = Strip(text.substr(0, start), nullptr, false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> SplitAt(std::string_view text, std::string_view separator, int64_t max_splits,
                                 bool from_right) {
  std::vector<std::string> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    const std::string_view after = text.substr(found + separator.size());
    const std::string_view before = text.substr(0, found);
    parts.emplace_back(from_right ? after : before);
    text = from_right ? before : after;
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

char32_t DecodeAt(std::string_view text, size_t* offset) { return utf8::Decode(text, offset); }

int64_t CountChars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

size_t OffsetOf(std::string_view text, int64_t index, size_t from) {
  size_t offset = from;
  while (index > 0 && offset < text.size()) {
    do {
      ++offset;
    } while (offset < text.size() && (static_cast<uint8_t>(text[offset]) & 0xC0) == 0x80);
    --index;
  }
  return offset;
}

std::vector<std::string> Chars(std::string_view text) {
  std::vector<std::string> chars;
  for (size_t offset = 0; offset < text.size();) {
    const size_t end = OffsetOf(text, 1, offset);
    chars.emplace_back(text.substr(offset, end - offset));
    offset = end;
  }
  return chars;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view Strip(std::string_view text, const std::string* chars, bool left, bool right) {
  const auto strips = [chars](char32_t c) { return chars == nullptr ? IsSpace(c) : Contains(*chars, c); };
  size_t start = 0;
  while (left && start < text.size()) {
    size_t next = start;
    if (!strips(DecodeAt(text, &next))) break;
    start = next;
  }
  size_t end = text.size();
  while (right && end > start) {
    const size_t previous = PreviousChar(text, end);
    size_t next = previous;
    if (!strips(DecodeAt(text, &next))) break;
    end = previous;
  }
  return text.substr(start, end - start);
}

std::vector<std::string> Split(std::string_view text, const std::string* separator, int64_t max_splits,
                               bool from_right) {
  if (separator != nullptr) return SplitAt(text, *separator, max_splits, from_right);
  return from_right ? SplitSpaceFromRight(text, max_splits) : SplitSpace(text, max_splits);
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const char32_t c = DecodeAt(text, &i);
    const bool breaks = (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.emplace_back(text.substr(start, (keep_ends ? i : end) - start));
    start = i;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

int64_t CountOf(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return CountChars(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + wanted.size())) ++count;
  return count;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace quire::jinja
