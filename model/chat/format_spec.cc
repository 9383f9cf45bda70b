#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/float_format.h"
#include "model/chat/methods.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

// Python's format specification mini-language: [[fill]align][sign][z][#][0][width][grouping][.precision][type]
namespace quire::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

bool IsAlign(std::string_view text, size_t offset) {
  return offset < text.size() && std::string_view("<>=^").find(text[offset]) != std::string_view::npos;
}

int64_t ReadNumber(std::string_view text, size_t* at) {
  int64_t value = 0;
  while (*at < text.size() && absl::ascii_isdigit(text[*at])) {
    value = std::min<int64_t>(value * 10 + (text[(*at)++] - '0'), int64_t{1} << 40);
  }
  return value;
}

Spec ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const size_t first = OffsetOf(text, 1);
  if (IsAlign(text, first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (IsAlign(text, 0)) {
    spec.align = text[0];
    at = 1;
  }
  const auto take = [&](std::string_view chars) {
    if (at >= text.size() || chars.find(text[at]) == std::string_view::npos) return '\0';
    return text[at++];
  };
  if (const char sign = take("+- "); sign != '\0') spec.sign = sign;
  take("z");
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0') {
    spec.zero = true;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = ReadNumber(text, &at);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    const size_t start = at;
    spec.precision = ReadNumber(text, &at);
    if (at == start) Fail("ValueError: Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) Fail("ValueError: Invalid format specifier");
  return spec;
}

std::string Pad(Budget& budget, const Spec& spec, std::string_view sign, std::string_view body, char usual) {
  const int64_t size = CountChars(sign) + CountChars(body);
  const int64_t pad = std::max<int64_t>(0, spec.width - size);
  budget.Bytes(std::min(pad * static_cast<int64_t>(spec.fill.size()), budget.limits().max_output_bytes + 1));
  const char align = spec.align == '\0' ? usual : spec.align;
  const int64_t left = align == '>' || align == '=' ? pad : align == '^' ? pad / 2 : 0;
  std::string out;
  if (align == '=') out += sign;
  for (int64_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += sign;
  out += body;
  for (int64_t i = left; i < pad; ++i) out += spec.fill;
  return out;
}

// Separators between groups of digits, counted from the right of the integer part; zeros that fill take part.
std::string Group(const Spec& spec, std::string digits, std::string_view rest, size_t sign_size, size_t group) {
  const bool fills = spec.align == '=' && spec.fill == "0";
  const auto grouped = [&] {
    std::string out;
    for (size_t i = 0; i < digits.size(); ++i) {
      if (i > 0 && (digits.size() - i) % group == 0) out += spec.grouping;
      out += digits[i];
    }
    return out;
  };
  std::string out = grouped();
  while (fills && static_cast<int64_t>(out.size() + rest.size() + sign_size) < spec.width && spec.width < 4096) {
    digits.insert(digits.begin(), '0');
    out = grouped();
  }
  return out;
}

std::string SignText(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string FormatFloat(Budget& budget, double value, const Spec& spec) {
  const bool percent = spec.type == '%';
  const double magnitude = std::abs(percent ? value * 100 : value);
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string text;
  if (spec.type == '\0' && spec.precision < 0) {
    text = FloatText(magnitude);
  } else {
    const char type = percent ? 'f' : spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
    text = FloatFormat(magnitude, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate, budget);
    if (spec.type == '\0' && text.find_first_of(".einf") == std::string::npos) text += ".0";
    if (percent) text += '%';
  }
  const std::string sign = SignText(spec, negative);
  if (spec.grouping != '\0' && std::isfinite(value)) {
    const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string rest = text.substr(end);
    text = Group(spec, text.substr(0, end), rest, sign.size(), 3) + rest;
  }
  return Pad(budget, spec, sign, text, '>');
}

std::string FormatInt(Budget& budget, Int value, const Spec& spec) {
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0') {
    return FormatFloat(budget, static_cast<double>(value), spec);
  }
  if (spec.precision >= 0) Fail("ValueError: Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      Fail("OverflowError: %c arg not in range(0x110000)");
    std::string text;
    utf8::Append(static_cast<char32_t>(value), &text);
    return Pad(budget, spec, "", text, '<');
  }
  const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
  if (base == 10 && spec.type != '\0' && spec.type != 'd' && spec.type != 'n') {
    Fail(Cat("ValueError: Unknown format code '", std::string(1, spec.type), "' for object of type 'int'"));
  }
  std::string digits = IntText(value, base);
  if (value < 0) digits.erase(0, 1);
  if (spec.type == 'X') absl::AsciiStrToUpper(&digits);
  std::string sign = SignText(spec, value < 0);
  if (spec.alternate && base != 10) sign += std::string("0") + spec.type;
  if (spec.grouping == ',' && base != 10) Fail("ValueError: Cannot specify ',' with that format code");
  if (spec.grouping != '\0') digits = Group(spec, digits, "", sign.size(), base == 10 ? 3 : 4);
  return Pad(budget, spec, sign, digits, '>');
}

std::string FormatString(Budget& budget, const std::string& text, Spec spec) {
  if (spec.type != '\0' && spec.type != 's') {
    Fail(Cat("ValueError: Unknown format code '", std::string(1, spec.type), "' for object of type 'str'"));
  }
  if (spec.sign != '-') Fail("ValueError: Sign not allowed in string format specifier");
  if (spec.alternate) Fail("ValueError: Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != '\0') Fail("ValueError: Cannot specify a grouping with 's'.");
  if (spec.align == '=') {
    if (!spec.zero) Fail("ValueError: '=' alignment not allowed in string format specifier");
    spec.align = '<';
  }
  const std::string_view shown =
      spec.precision < 0 ? std::string_view(text) : std::string_view(text).substr(0, OffsetOf(text, spec.precision));
  return Pad(budget, spec, "", shown, '<');
}

}  // namespace

std::string FormatValue(Budget& budget, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return Str(budget, value);
  if (!value.is(Kind::kString) && !value.is_number()) {
    Fail(Cat("TypeError: unsupported format string passed to ", TypeName(value), ".__format__"));
  }
  const Spec spec = ParseSpec(spec_text);
  if (value.is(Kind::kString)) return FormatString(budget, value.text(), spec);
  if (value.is_integral()) return FormatInt(budget, value.integer(), spec);
  if (spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos) {
    Fail(Cat("ValueError: Unknown format code '", std::string(1, spec.type), "' for object of type 'float'"));
  }
  return FormatFloat(budget, value.floating(), spec);
}

}  // namespace quire::jinja
