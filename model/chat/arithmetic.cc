#include <algorithm>
#include <cmath>

#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"

// + - * / // % **
namespace quire::jinja {
namespace {

[[noreturn]] void FailOverflow() {
  throw TemplateError(ErrorKind::kLimit, "OverflowError: an integer is beyond 127 bits");
}

[[noreturn]] void FailOperands(BinaryOp op, const Value& left, const Value& right) {
  CheckDefined(left);
  CheckDefined(right);
  constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  Fail(Cat("TypeError: unsupported operand type(s) for ", kNames[static_cast<size_t>(op)], ": '", TypeName(left),
           "' and '", TypeName(right), "'"));
}

double ToDouble(const Value& value) {
  return value.is(Kind::kFloat) ? value.floating() : static_cast<double>(value.integer());
}

Int FloorDiv(Int left, Int right) {
  const Int quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value IntPower(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("ZeroDivisionError: 0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Integer(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 127) FailOverflow();
  Int result = 1;
  for (Int i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) FailOverflow();
  }
  return Value::Integer(result);
}

Value IntArithmetic(BinaryOp op, Int left, Int right) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOp::kDiv:
      if (right == 0) Fail("ZeroDivisionError: division by zero");
      return Value::Float(static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod:
      if (right == 0) Fail("ZeroDivisionError: integer division or modulo by zero");
      if (right == -1) return op == BinaryOp::kMod ? Value::Integer(0) : IntArithmetic(BinaryOp::kSub, 0, left);
      result = op == BinaryOp::kMod ? left - FloorDiv(left, right) * right : FloorDiv(left, right);
      break;
    case BinaryOp::kPow:
      return IntPower(left, right);
  }
  if (overflow) FailOverflow();
  return Value::Integer(result);
}

// Python's float modulo takes the sign of the divisor.
double FloatMod(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest == 0) return std::copysign(0.0, right);
  if ((rest < 0) != (right < 0)) rest += right;
  return rest;
}

double FloatFloorDiv(double left, double right) {
  const double quotient = (left - FloatMod(left, right)) / right;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

double FloatPower(double left, double right) {
  if (left == 0 && right < 0) Fail("ZeroDivisionError: 0.0 cannot be raised to a negative power");
  if (left < 0 && std::isfinite(left) && std::isfinite(right) && std::trunc(right) != right) {
    Fail("ValueError: a negative number to a fractional power is complex");
  }
  const double result = std::pow(left, right);
  if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
    Fail("OverflowError: (34, 'Numerical result out of range')");
  return result;
}

Value FloatArithmetic(BinaryOp op, double left, double right) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(left + right);
    case BinaryOp::kSub:
      return Value::Float(left - right);
    case BinaryOp::kMul:
      return Value::Float(left * right);
    case BinaryOp::kPow:
      return Value::Float(FloatPower(left, right));
    default:
      break;
  }
  if (right == 0) Fail("ZeroDivisionError: float division by zero");
  if (op == BinaryOp::kDiv) return Value::Float(left / right);
  return Value::Float(op == BinaryOp::kMod ? FloatMod(left, right) : FloatFloorDiv(left, right));
}

Value AddStrings(Budget& budget, const Value& left, const Value& right) {
  const bool markup = left.markup() || right.markup();
  std::string text;
  for (const Value* part : {&left, &right}) {
    budget.Append(markup && !part->markup() ? Escape(part->text()) : part->text(), &text);
  }
  return Value::String(std::move(text), markup);
}

Value AddSequences(Budget& budget, const Value& left, const Value& right) {
  std::vector<Value> items;
  budget.Elements(static_cast<int64_t>(left.items().size() + right.items().size()));
  items.reserve(left.items().size() + right.items().size());
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

Value Repeat(Budget& budget, const Value& value, const Value& times) {
  const int64_t count = std::max<int64_t>(0, IndexOf(times, "a factor"));
  if (value.is(Kind::kString)) {
    const auto size = static_cast<int64_t>(value.text().size());
    if (count > 0 && size > budget.limits().max_output_bytes / count)
      budget.Bytes(budget.limits().max_output_bytes + 1);
    budget.Bytes(size * count);
    std::string text;
    for (int64_t i = 0; i < count && size > 0; ++i) text += value.text();
    return Value::String(std::move(text), value.markup());
  }
  const auto size = static_cast<int64_t>(value.items().size());
  if (size > 0) budget.Elements(count > budget.limits().max_steps / size ? budget.limits().max_steps : size * count);
  std::vector<Value> items;
  for (int64_t i = 0; i < count && size > 0; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace

Value Arithmetic(Budget& budget, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kMod && left.is(Kind::kString)) {
    return Value::String(PercentFormat(budget, left.text(), right, left.markup()), left.markup());
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) return IntArithmetic(op, left.integer(), right.integer());
    return FloatArithmetic(op, ToDouble(left), ToDouble(right));
  }
  const bool left_repeats = left.is(Kind::kString) || left.is_sequence();
  const bool right_repeats = right.is(Kind::kString) || right.is_sequence();
  if (op == BinaryOp::kAdd && left.is(Kind::kString) && right.is(Kind::kString)) return AddStrings(budget, left, right);
  if (op == BinaryOp::kAdd && left.is_sequence() && left.kind() == right.kind())
    return AddSequences(budget, left, right);
  if (op == BinaryOp::kMul && left_repeats && right.is_integral()) return Repeat(budget, left, right);
  if (op == BinaryOp::kMul && right_repeats && left.is_integral()) return Repeat(budget, right, left);
  FailOperands(op, left, right);
}

Value Negate(const Value& value) {
  CheckDefined(value);
  if (value.is_integral()) return IntArithmetic(BinaryOp::kSub, 0, value.integer());
  if (value.is(Kind::kFloat)) return Value::Float(-value.floating());
  Fail(Cat("TypeError: bad operand type for unary -: '", TypeName(value), "'"));
}

Value Posit(const Value& value) {
  CheckDefined(value);
  if (value.is_integral()) return Value::Integer(value.integer());
  if (value.is(Kind::kFloat)) return value;
  Fail(Cat("TypeError: bad operand type for unary +: '", TypeName(value), "'"));
}

}  // namespace quire::jinja
