#include <cmath>

#include "absl/strings/str_format.h"
#include "model/chat/arguments.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/filters.h"
#include "model/chat/float_format.h"
#include "model/chat/interpreter.h"
#include "model/chat/text.h"

// Filters on numbers.
namespace quire::jinja {
namespace {

Value AbsFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("abs", {}, 0, arguments);
  CheckDefined(input);
  if (input.is_integral()) return input.integer() < 0 ? Negate(input) : Posit(input);
  if (input.is(Kind::kFloat)) return Value::Float(std::abs(input.floating()));
  Fail(Cat("TypeError: bad operand type for abs(): '", TypeName(input), "'"));
}

// int(value) of a float; nullopt for inf and nan.
std::optional<Int> Whole(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 1.7e38) throw TemplateError(ErrorKind::kLimit, "OverflowError: an integer is beyond 127 bits");
  return static_cast<Int>(value);
}

Value IntFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("int", {"default", "base"}, 0, arguments);
  const Value otherwise = parameters.Or(0, Value::Integer(0));
  CheckDefined(input);
  if (input.is_integral()) return Value::Integer(input.integer());
  if (input.is(Kind::kFloat)) {
    const auto whole = Whole(input.floating());
    if (!whole.has_value() && std::isinf(input.floating()))
      Fail("OverflowError: cannot convert float infinity to integer");
    return whole.has_value() ? Value::Integer(*whole) : otherwise;
  }
  if (!input.is(Kind::kString)) return otherwise;
  const int64_t base = parameters.Index(1, 10);
  const bool valid_base = base == 0 || (base >= 2 && base <= 36);
  const auto direct = valid_base ? ParseInt(input.text(), static_cast<int>(base)) : std::nullopt;
  if (direct.has_value()) return Value::Integer(*direct);
  // "42.23" counts as 42.
  const auto number = ParseFloat(input.text());
  if (!number.has_value()) return otherwise;
  const auto whole = Whole(*number);
  return whole.has_value() ? Value::Integer(*whole) : otherwise;
}

Value FloatFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("float", {"default"}, 0, arguments);
  const Value otherwise = parameters.Or(0, Value::Float(0));
  CheckDefined(input);
  if (input.is_integral()) return Value::Float(static_cast<double>(input.integer()));
  if (input.is(Kind::kFloat)) return input;
  if (!input.is(Kind::kString)) return otherwise;
  const auto number = ParseFloat(input.text());
  return number.has_value() ? Value::Float(*number) : otherwise;
}

// Python's round of an int: to tens, hundreds, ... half to even for negative digits.
Value RoundInt(Int value, int64_t digits) {
  if (digits >= 0) return Value::Integer(value);
  if (digits < -37) return Value::Integer(0);
  Int unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  Int rest = value % unit;
  if (rest < 0) rest += unit;
  const Int floor = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (floor / unit) % 2 != 0);
  return Value::Integer(up ? floor + unit : floor);
}

Value RoundFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("round", {"precision", "method"}, 0, arguments);
  const std::string method = parameters.Has(1) ? parameters.Text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  CheckDefined(input);
  if (!input.is_number()) Fail(Cat("TypeError: type ", TypeName(input), " doesn't define __round__ method"));
  const int64_t digits = parameters.Index(0, 0);
  if (method == "common") {
    if (input.is_integral()) return RoundInt(input.integer(), digits);
    return Value::Float(RoundFloat(input.floating(), digits));
  }
  Budget& budget = in.budget();
  const Value unit = Arithmetic(budget, BinaryOp::kPow, Value::Integer(10), Value::Integer(digits));
  const Value scaled = Arithmetic(budget, BinaryOp::kMul, input, unit);
  Value whole = scaled;
  if (scaled.is(Kind::kFloat)) {
    const auto integer = Whole(method == "ceil" ? std::ceil(scaled.floating()) : std::floor(scaled.floating()));
    if (!integer.has_value()) Fail("ValueError: cannot convert float NaN or infinity to integer");
    whole = Value::Integer(*integer);
  }
  return Arithmetic(budget, BinaryOp::kDiv, whole, unit);
}

Value FileSizeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("filesizeformat", {"binary"}, 0, arguments);
  Arguments none;
  const Value number = FloatFilter(in, input, none);
  const bool binary = parameters.Flag(0, false);
  if (input.is(Kind::kString) && !ParseFloat(input.text()).has_value())
    Fail("ValueError: could not convert string to float");
  if (!input.is(Kind::kString) && !input.is_number())
    Fail("TypeError: float() argument must be a string or a real number");
  const double bytes = number.floating();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) {
    const auto whole = Whole(bytes);
    if (!whole.has_value()) Fail("ValueError: cannot convert float NaN to integer");
    return Value::String(Cat(IntText(*whole), " Bytes"));
  }
  constexpr std::string_view kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  constexpr std::string_view kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  double unit = base;
  int prefix = 0;
  for (;; ++prefix) {
    unit *= base;
    if (bytes < unit || prefix == 7) break;
  }
  return Value::String(absl::StrFormat("%.1f %s", base * bytes / unit, binary ? kBinary[prefix] : kDecimal[prefix]));
}

constexpr FilterEntry kFilters[] = {{"abs", AbsFilter},
                                    {"int", IntFilter},
                                    {"float", FloatFilter},
                                    {"round", RoundFilter},
                                    {"filesizeformat", FileSizeFilter}};

}  // namespace

std::span<const FilterEntry> NumberFilters() { return kFilters; }

}  // namespace quire::jinja
