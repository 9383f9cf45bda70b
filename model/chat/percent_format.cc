#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/float_format.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

// text % arguments
namespace quire::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, std::string_view format, const Value& arguments, bool escape)
      : budget_(budget), format_(format), arguments_(arguments), escape_(escape) {}

  std::string Run() {
    for (; at_ < format_.size(); ++at_) {
      if (format_[at_] != '%') {
        const size_t end = std::min(format_.find('%', at_), format_.size());
        budget_.Append(format_.substr(at_, end - at_), &out_);
        at_ = end - 1;
        continue;
      }
      ++at_;
      Conversion();
    }
    const bool unused = arguments_.is(Kind::kTuple) ? next_ < arguments_.items().size() : !used_ && !TakesNames();
    if (unused) Fail("TypeError: not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  // What has entries by name, as far as % is concerned.
  bool TakesNames() const {
    const Kind kind = arguments_.kind();
    return kind == Kind::kDict || kind == Kind::kList || kind == Kind::kRange || kind == Kind::kUndefined;
  }

  Value NextArgument() {
    if (arguments_.is(Kind::kTuple)) {
      if (next_ >= arguments_.items().size()) Fail("TypeError: not enough arguments for format string");
      return arguments_.items()[next_++];
    }
    if (used_) Fail("TypeError: not enough arguments for format string");
    used_ = true;
    return arguments_;
  }

  Value NamedArgument() {
    const size_t start = ++at_;
    for (int depth = 1; at_ < format_.size(); ++at_) {
      if (format_[at_] == '(') ++depth;
      if (format_[at_] == ')' && --depth == 0) break;
    }
    if (at_ >= format_.size()) Fail("ValueError: incomplete format key");
    const std::string_view name = format_.substr(start, at_++ - start);
    if (!arguments_.is(Kind::kDict)) Fail("TypeError: format requires a mapping");
    used_ = true;
    const Value* value = arguments_.dict().Find(name);
    if (value == nullptr) Fail(Cat("KeyError: '", name, "'"));
    return *value;
  }

  int64_t NumberOrStar() {
    if (at_ < format_.size() && format_[at_] == '*') {
      ++at_;
      const Value value = NextArgument();
      if (!value.is_integral()) Fail("TypeError: * wants int");
      return IndexOf(value, "a width");
    }
    int64_t number = 0;
    while (at_ < format_.size() && absl::ascii_isdigit(format_[at_])) {
      number = std::min<int64_t>(number * 10 + (format_[at_++] - '0'), int64_t{1} << 40);
    }
    return number;
  }

  void Conversion() {
    std::optional<Value> named;
    if (at_ < format_.size() && format_[at_] == '(') named = NamedArgument();
    left_ = plus_ = space_ = alternate_ = zero_ = false;
    for (; at_ < format_.size(); ++at_) {
      const char flag = format_[at_];
      if (flag == '-')
        left_ = true;
      else if (flag == '+')
        plus_ = true;
      else if (flag == ' ')
        space_ = true;
      else if (flag == '#')
        alternate_ = true;
      else if (flag == '0')
        zero_ = true;
      else
        break;
    }
    width_ = NumberOrStar();
    if (width_ < 0) {
      left_ = true;
      width_ = -width_;
    }
    precision_ = -1;
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      precision_ = std::max<int64_t>(0, NumberOrStar());
    }
    while (at_ < format_.size() && (format_[at_] == 'l' || format_[at_] == 'h' || format_[at_] == 'L')) ++at_;
    if (at_ >= format_.size()) Fail("ValueError: incomplete format");
    const char type = format_[at_];
    if (type == '%') return budget_.Append("%", &out_);
    Convert(type, named.has_value() ? *named : NextArgument());
  }

  void Convert(char type, const Value& value) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return Pad("", Truncated(Shown(type, value)), false);
      case 'c':
        return Pad("", Character(value), false);
      case 'd':
      case 'i':
      case 'u':
        return Integer(type, 10, value);
      case 'o':
        return Integer(type, 8, value);
      case 'x':
      case 'X':
        return Integer(type, 16, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return Float(type, value);
      default:
        Fail(Cat("ValueError: unsupported format character '", format_.substr(at_, 1), "'"));
    }
  }

  std::string Shown(char type, const Value& value) {
    std::string text = type == 's' ? Str(budget_, value) : Repr(budget_, value);
    if (type == 'a') text = Ascii(text);
    const bool markup = value.is(Kind::kString) && value.markup() && type == 's';
    return escape_ && !markup ? Escape(text) : text;
  }

  static std::string Ascii(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const char32_t c = DecodeAt(text, &i);
      if (c < 0x80) {
        out += static_cast<char>(c);
        continue;
      }
      std::string digits = IntText(static_cast<Int>(c), 16);
      const size_t width = c <= 0xFF ? 2 : c <= 0xFFFF ? 4 : 8;
      digits.insert(0, width - digits.size(), '0');
      CatTo(&out, c <= 0xFF ? "\\x" : c <= 0xFFFF ? "\\u" : "\\U", digits);
    }
    return out;
  }

  std::string Truncated(std::string text) const {
    if (precision_ >= 0) text.resize(OffsetOf(text, precision_));
    return text;
  }

  std::string Character(const Value& value) {
    if (value.is(Kind::kString) && value.as<StringObject>().num_chars == 1) return value.text();
    CheckDefined(value);
    if (!value.is_integral()) Fail("TypeError: %c requires int or char");
    const Int code = value.integer();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      Fail("OverflowError: %c arg not in range(0x110000)");
    std::string text;
    utf8::Append(static_cast<char32_t>(code), &text);
    return text;
  }

  void Integer(char type, int base, const Value& value) {
    CheckDefined(value);
    const bool decimal = base == 10;
    if (!value.is_integral() && !(decimal && value.is(Kind::kFloat))) {
      Fail(Cat("TypeError: %", std::string(1, type), " format: ", decimal ? "a real number" : "an integer",
               " is required, not ", TypeName(value)));
    }
    Int number = 0;
    if (value.is(Kind::kFloat)) {
      if (!(std::abs(value.floating()) < 1e38)) Fail("OverflowError: cannot convert that float to integer");
      number = static_cast<Int>(value.floating());
    } else {
      number = value.integer();
    }
    std::string digits = IntText(number, base);
    if (number < 0) digits.erase(0, 1);
    if (type == 'X') absl::AsciiStrToUpper(&digits);
    const int64_t missing = precision_ - static_cast<int64_t>(digits.size());
    if (missing > 0) {
      budget_.Bytes(std::min(missing, budget_.limits().max_output_bytes + 1));
      digits.insert(0, static_cast<size_t>(missing), '0');
    }
    std::string prefix = Sign(number < 0);
    if (alternate_ && !decimal) CatTo(&prefix, "0", std::string(1, type));
    Pad(prefix, digits, zero_);
  }

  void Float(char type, const Value& value) {
    CheckDefined(value);
    if (!value.is_number()) Fail(Cat("TypeError: must be real number, not ", TypeName(value)));
    const double number = value.is(Kind::kFloat) ? value.floating() : static_cast<double>(value.integer());
    const bool negative = std::signbit(number) && !std::isnan(number);
    const std::string text = FloatFormat(std::abs(number), type, precision_ < 0 ? 6 : precision_, alternate_, budget_);
    Pad(Sign(negative), text, zero_);
  }

  std::string Sign(bool negative) const { return negative ? "-" : plus_ ? "+" : space_ ? " " : ""; }

  void Pad(const std::string& prefix, const std::string& body, bool zeros) {
    const int64_t pad = std::max<int64_t>(0, width_ - CountChars(prefix) - CountChars(body));
    budget_.Bytes(std::min(pad, budget_.limits().max_output_bytes + 1));
    const std::string filler(static_cast<size_t>(pad), zeros && !left_ ? '0' : ' ');
    if (left_) return budget_.Append(prefix + body + filler, &out_);
    budget_.Append(zeros ? prefix + filler + body : filler + prefix + body, &out_);
  }

  Budget& budget_;
  const std::string_view format_;
  const Value& arguments_;
  const bool escape_;
  size_t at_ = 0;
  size_t next_ = 0;    // of a tuple's items
  bool used_ = false;  // what is not a tuple
  std::string out_;
  // Of the conversion being made.
  bool left_ = false, plus_ = false, space_ = false, alternate_ = false, zero_ = false;
  int64_t width_ = 0, precision_ = -1;
};

}  // namespace

std::string PercentFormat(Budget& budget, std::string_view format, const Value& arguments, bool escape) {
  return PercentFormatter(budget, format, arguments, escape).Run();
}

}  // namespace quire::jinja
