#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "absl/strings/ascii.h"
#include "model/chat/text.h"

// Numbers from text and back, as Python writes them.
namespace quire::jinja {
namespace {

// Digits with single underscores between them, the underscores taken out; nullopt if they stand elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between =
        i > 0 && i + 1 < text.size() && absl::ascii_isalnum(text[i - 1]) && absl::ascii_isalnum(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return out;
}

}  // namespace

int DigitValue(char c) {
  if (absl::ascii_isdigit(c)) return c - '0';
  if (absl::ascii_isalpha(c)) return absl::ascii_tolower(c) - 'a' + 10;
  return 99;
}

std::optional<Int> ParseDigits(std::string_view digits, int base) {
  Int value = 0;
  for (const char c : digits) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, Int{base}, &value)) return std::nullopt;
    if (__builtin_add_overflow(value, Int{DigitValue(c)}, &value)) return std::nullopt;
  }
  return value;
}

std::optional<Int> ParseInt(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = Strip(text, nullptr, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char mark = text.size() > 2 && text[0] == '0' ? absl::ascii_tolower(text[1]) : '\0';
  const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    base = marked;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  }
  const bool any_base = base == 0;
  if (any_base) base = 10;
  const auto digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  if (!std::all_of(digits->begin(), digits->end(), [base](char c) { return DigitValue(c) < base; }))
    return std::nullopt;
  if (any_base && (*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) return std::nullopt;
  const auto value = ParseDigits(*digits, base);
  if (!value.has_value()) return std::nullopt;
  return negative ? -*value : *value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, nullptr, true, true);
  std::string_view body = text;
  if (!body.empty() && (body[0] == '-' || body[0] == '+')) body.remove_prefix(1);
  const bool negative = text.starts_with('-');
  const std::string lowered = Lower(body.substr(0, 9));
  if (lowered == "inf" || lowered == "infinity") return negative ? -INFINITY : INFINITY;
  if (lowered == "nan") return NAN;
  const auto digits = WithoutUnderscores(body);
  if (!digits.has_value() || digits->empty() || digits->find_first_not_of("0123456789.eE+-") != std::string::npos) {
    return std::nullopt;
  }
  if (!absl::ascii_isdigit((*digits)[0]) && (*digits)[0] != '.') return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return negative ? -value : value;
}

std::string IntText(Int value, int base) {
  const bool negative = value < 0;
  auto rest = negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  std::string text;
  do {
    text += "0123456789abcdef"[static_cast<int>(rest % static_cast<unsigned>(base))];
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  if (negative) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (absl::ascii_isdigit(c)) digits += c;
  }
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace quire::jinja
