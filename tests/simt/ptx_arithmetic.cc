// Instructions that only compute. f32 as IEEE: approximate forms are exact here (tests that compare bits avoid them).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "tests/simt/ptx.h"

namespace quire::simt::ptx {
namespace {

float F32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double F64(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

float F16(uint64_t bits) { return __half2float(__half(__half_raw{static_cast<unsigned short>(bits)})); }
float Bf16(uint64_t bits) { return F32(static_cast<uint64_t>(static_cast<uint32_t>(bits & 0xffff) << 16)); }
uint64_t ToF16(float value) { return static_cast<__half_raw>(__float2half(value)).x; }
uint64_t ToBf16(float value) { return static_cast<__nv_bfloat16_raw>(__float2bfloat16(value)).x; }

// --- types of floating point: packed ones lane by lane, 16-bit ones through f32 (exact up to the one rounding, and for
// fma by double)

bool IsFloat(Type type) {
  return type == Type::kF32 || type == Type::kF64 || type == Type::kF16 || type == Type::kBf16 ||
         type == Type::kF16x2 || type == Type::kBf16x2;
}

double Load(Type type, uint64_t bits) {
  switch (type) {
    case Type::kF64:
      return F64(bits);
    case Type::kF16:
    case Type::kF16x2:
      return F16(bits & 0xffff);
    case Type::kBf16:
    case Type::kBf16x2:
      return Bf16(bits & 0xffff);
    default:
      return F32(bits);
  }
}

uint64_t Store(Type type, double value) {
  switch (type) {
    case Type::kF64:
      return Bits(value);
    case Type::kF16:
    case Type::kF16x2:
      return static_cast<__half_raw>(__double2half(value)).x;
    case Type::kBf16:
    case Type::kBf16x2:
      return static_cast<__nv_bfloat16_raw>(__double2bfloat16(value)).x;
    default:
      return Bits(static_cast<float>(value));
  }
}

template <typename Function>
uint64_t OnFloats(Type type, const uint64_t* sources, int count, Function function) {
  double values[3] = {};
  for (int i = 0; i < count; ++i) values[i] = Load(type, sources[i]);
  uint64_t result = Store(type, function(values));
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    for (int i = 0; i < count; ++i) values[i] = Load(type, sources[i] >> 16);
    result |= Store(type, function(values)) << 16;
  }
  return result;
}

// Sums and products of two f32 are rounded once from double to f32 as if exact (53 >= 2 * 24 + 2); fma needs its own.
uint64_t FloatOp(const Instruction& in, const uint64_t* s) {
  const Type type = in.type;
  switch (in.opcode) {
    case Opcode::kAdd:
      return OnFloats(type, s, 2, [](const double* v) { return v[0] + v[1]; });
    case Opcode::kSub:
      return OnFloats(type, s, 2, [](const double* v) { return v[0] - v[1]; });
    case Opcode::kMul:
      return OnFloats(type, s, 2, [](const double* v) { return v[0] * v[1]; });
    case Opcode::kDiv:
      return OnFloats(type, s, 2, [](const double* v) { return v[0] / v[1]; });
    case Opcode::kMin:
      return OnFloats(type, s, 2, [](const double* v) { return std::fmin(v[0], v[1]); });
    case Opcode::kMax:
      return OnFloats(type, s, 2, [](const double* v) { return std::fmax(v[0], v[1]); });
    case Opcode::kFma:
      if (type == Type::kF32) return Bits(std::fma(F32(s[0]), F32(s[1]), F32(s[2])));
      return OnFloats(type, s, 3, [](const double* v) { return std::fma(v[0], v[1], v[2]); });
    case Opcode::kNeg:
      return OnFloats(type, s, 1, [](const double* v) { return -v[0]; });
    case Opcode::kAbs:
      return OnFloats(type, s, 1, [](const double* v) { return std::fabs(v[0]); });
    case Opcode::kSqrt:
      return OnFloats(type, s, 1, [](const double* v) { return std::sqrt(v[0]); });
    case Opcode::kRcp:
      return OnFloats(type, s, 1, [](const double* v) { return 1 / v[0]; });
    case Opcode::kRsqrt:
      return Bits(1.0f / std::sqrt(F32(s[0])));
    case Opcode::kEx2:
      return Bits(std::exp2(F32(s[0])));
    case Opcode::kLg2:
      return Bits(std::log2(F32(s[0])));
    case Opcode::kTanh:
      return Bits(std::tanh(F32(s[0])));
    default:
      throw std::runtime_error("ptx line " + std::to_string(in.line) + ": no such operation on floats");
  }
}

// --- integers

uint64_t MulHigh(Type type, uint64_t a, uint64_t b) {
  const int width = SizeOf(type) * 8;
  if (IsSigned(type)) {
    const __int128 product = static_cast<__int128>(static_cast<int64_t>(a)) * static_cast<int64_t>(b);
    return Narrow(type, static_cast<uint64_t>(product >> width));
  }
  return Narrow(type, static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> width));
}

uint64_t Divide(const Instruction& in, uint64_t a, uint64_t b) {
  if (b == 0) throw std::runtime_error("ptx line " + std::to_string(in.line) + ": division by zero");
  const bool rest = in.opcode == Opcode::kRem;
  if (!IsSigned(in.type)) return rest ? a % b : a / b;
  const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  return Narrow(in.type, static_cast<uint64_t>(rest ? x % y : x / y));
}

uint64_t Shift(const Instruction& in, uint64_t value, uint64_t amount) {
  const uint64_t width = static_cast<uint64_t>(SizeOf(in.type)) * 8;
  amount &= 0xffffffffu;
  if (in.opcode == Opcode::kShl) return amount >= width ? 0 : Narrow(in.type, value << amount);
  if (IsSigned(in.type)) {
    return Narrow(in.type, static_cast<uint64_t>(static_cast<int64_t>(value) >> std::min(amount, width - 1)));
  }
  return amount >= width ? 0 : value >> amount;
}

uint64_t FunnelShift(const Instruction& in, const uint64_t* s) {
  const uint64_t both = (s[1] & 0xffffffffu) << 32 | (s[0] & 0xffffffffu);
  const uint64_t raw = s[2] & 0xffffffffu;
  const uint64_t amount = in.Has("clamp") ? std::min<uint64_t>(raw, 32) : raw & 31;
  return (in.Has("l") ? both >> (32 - amount) : both >> amount) & 0xffffffffu;
}

uint64_t Lop3(const uint64_t* s) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) {
    const auto index = ((s[0] >> i) & 1) << 2 | ((s[1] >> i) & 1) << 1 | ((s[2] >> i) & 1);
    result |= static_cast<uint32_t>((s[3] >> index) & 1) << i;
  }
  return result;
}

uint64_t Permute(const uint64_t* s) {
  const uint64_t bytes = (s[1] & 0xffffffffu) << 32 | (s[0] & 0xffffffffu);
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint64_t selector = (s[2] >> (4 * i)) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 0xff;
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

uint64_t InsertBits(Type type, const uint64_t* s) {
  const uint64_t position = s[2] & 0xff, length = s[3] & 0xff;
  if (position >= static_cast<uint64_t>(SizeOf(type)) * 8) return Narrow(type, s[1]);
  const uint64_t mask = (length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << position;
  return Narrow(type, (s[1] & ~mask) | ((s[0] << position) & mask));
}

uint64_t ExtractBits(Type type, const uint64_t* s) {
  const uint64_t position = s[1] & 0xff, length = std::min<uint64_t>(s[2] & 0xff, 64);
  if (length == 0 || position >= 64) return 0;
  const uint64_t mask = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
  uint64_t value = (Narrow(type, s[0]) >> position) & mask;
  if (IsSigned(type) && ((value >> (length - 1)) & 1) != 0) value |= ~mask;
  return Narrow(type, value);
}

uint64_t IntegerOp(const Instruction& in, const uint64_t* s) {
  const Type type = in.type == Type::kPred ? Type::kB8 : in.type;
  const auto narrow = [type](uint64_t bits) { return Narrow(type, bits); };
  const uint64_t a = narrow(s[0]), b = narrow(s[1]);
  const bool less = IsSigned(type) ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  switch (in.opcode) {
    case Opcode::kAdd:
      return narrow(a + b);
    case Opcode::kSub:
      return narrow(a - b);
    case Opcode::kMul:
      return in.high ? MulHigh(type, a, b) : in.wide ? a * b : narrow(a * b);
    case Opcode::kMad:
      return in.wide ? a * b + s[2] : narrow(a * b + s[2]);
    case Opcode::kDiv:
    case Opcode::kRem:
      return Divide(in, a, b);
    case Opcode::kMin:
      return less ? a : b;
    case Opcode::kMax:
      return less ? b : a;
    case Opcode::kNeg:
      return narrow(0 - a);
    case Opcode::kAbs:
      return narrow(static_cast<int64_t>(a) < 0 ? 0 - a : a);
    case Opcode::kAnd:
      return a & b;
    case Opcode::kOr:
      return a | b;
    case Opcode::kXor:
      return a ^ b;
    case Opcode::kNot:
      return in.type == Type::kPred ? a == 0 : narrow(~a);
    case Opcode::kShl:
    case Opcode::kShr:
      return Shift(in, a, s[1]);
    case Opcode::kPopc:
      return static_cast<uint64_t>(__builtin_popcountll(a));
    case Opcode::kClz:
      return static_cast<uint64_t>(std::countl_zero(a) - (64 - SizeOf(type) * 8));
    case Opcode::kBrev: {
      uint64_t result = 0;
      for (int i = 0; i < 32; ++i) result |= ((a >> i) & 1) << (31 - i);
      return result;
    }
    case Opcode::kBfi:
      return InsertBits(type, s);
    case Opcode::kBfe:
      return ExtractBits(type, s);
    case Opcode::kShf:
      return FunnelShift(in, s);
    case Opcode::kLop3:
      return Lop3(s);
    case Opcode::kPrmt:
      return Permute(s);
    default:
      throw std::runtime_error("ptx line " + std::to_string(in.line) + ": no such operation on integers");
  }
}

// --- comparisons

bool CompareFloats(const std::string& comparison, double a, double b) {
  const bool unordered = std::isnan(a) || std::isnan(b);
  if (comparison == "nan") return unordered;
  if (comparison == "num") return !unordered;
  const bool or_unordered = comparison.size() == 3 && comparison.back() == 'u';
  if (unordered) return or_unordered;
  const std::string base = comparison.substr(0, 2);
  return base == "eq"   ? a == b
         : base == "ne" ? a != b
         : base == "lt" ? a < b
         : base == "le" ? a <= b
         : base == "gt" ? a > b
                        : a >= b;
}

template <typename T>
bool CompareIntegers(const std::string& comparison, T a, T b) {
  if (comparison == "eq") return a == b;
  if (comparison == "ne") return a != b;
  if (comparison == "lt" || comparison == "lo") return a < b;
  if (comparison == "le" || comparison == "ls") return a <= b;
  if (comparison == "gt" || comparison == "hi") return a > b;
  return a >= b;
}

uint64_t Compare(const Instruction& in, const uint64_t* s) {
  const std::string& comparison = in.Modifier(0);
  bool result;
  if (IsFloat(in.type)) {
    result = CompareFloats(comparison, Load(in.type, s[0]), Load(in.type, s[1]));
  } else {
    const uint64_t a = Narrow(in.type, s[0]), b = Narrow(in.type, s[1]);
    result = IsSigned(in.type) ? CompareIntegers(comparison, static_cast<int64_t>(a), static_cast<int64_t>(b))
                               : CompareIntegers(comparison, a, b);
  }
  if (in.Modifier(1) == "and") return result && s[2] != 0;
  if (in.Modifier(1) == "or") return result || s[2] != 0;
  if (in.Modifier(1) == "xor") return result != (s[2] != 0);
  return result;
}

// --- conversions

uint64_t FromFp8(uint64_t bits, __nv_fp8_interpretation_t kind) {
  return static_cast<__half_raw>(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(bits), kind)).x;
}

uint64_t Round(const Instruction& in, double value) {
  const double rounded = in.Has("rni")   ? std::nearbyint(value)
                         : in.Has("rmi") ? std::floor(value)
                         : in.Has("rpi") ? std::ceil(value)
                                         : std::trunc(value);
  if (in.type == Type::kF32) return Bits(static_cast<float>(rounded));
  if (std::isnan(rounded)) return 0;
  // Integers saturate.
  const int width = SizeOf(in.type) * 8;
  const double low = IsSigned(in.type) ? -std::ldexp(1.0, width - 1) : 0;
  const double high = std::ldexp(1.0, IsSigned(in.type) ? width - 1 : width);
  if (rounded < low) return Narrow(in.type, IsSigned(in.type) ? uint64_t{1} << (width - 1) : 0);
  if (rounded >= high) return Narrow(in.type, (IsSigned(in.type) ? uint64_t{1} << (width - 1) : 0) - 1);
  return Narrow(in.type, IsSigned(in.type) ? static_cast<uint64_t>(static_cast<int64_t>(rounded))
                                           : static_cast<uint64_t>(rounded));
}

uint64_t Convert(const Instruction& in, const uint64_t* s) {
  const Type to = in.type, from = in.source_type;
  if (to == Type::kBf16x2) return ToBf16(F32(s[0])) << 16 | ToBf16(F32(s[1]));
  if (to == Type::kF16x2 && (from == Type::kE4m3x2 || from == Type::kE5m2x2)) {
    const auto kind = from == Type::kE4m3x2 ? __NV_E4M3 : __NV_E5M2;
    return FromFp8(s[0] & 0xff, kind) | FromFp8((s[0] >> 8) & 0xff, kind) << 16;
  }
  if (to == Type::kF16x2) return ToF16(F32(s[0])) << 16 | ToF16(F32(s[1]));
  if (to == Type::kE4m3x2) {
    const auto low = __nv_cvt_float_to_fp8(F32(s[1]), __NV_SATFINITE, __NV_E4M3);
    return static_cast<uint64_t>(__nv_cvt_float_to_fp8(F32(s[0]), __NV_SATFINITE, __NV_E4M3)) << 8 | low;
  }
  if (!IsFloat(from)) {
    const uint64_t value = Narrow(from, s[0]);
    if (!IsFloat(to)) return Narrow(to, value);
    if (to == Type::kF32) {
      return Bits(IsSigned(from) ? static_cast<float>(static_cast<int64_t>(value)) : static_cast<float>(value));
    }
    return Store(to, IsSigned(from) ? static_cast<double>(static_cast<int64_t>(value)) : static_cast<double>(value));
  }
  const double value = Load(from, s[0]);
  const bool to_integral = in.Has("rni") || in.Has("rmi") || in.Has("rpi") || in.Has("rzi");
  if (!IsFloat(to) || to_integral) return Round(in, value);
  double kept = value;
  if (in.Has("sat")) kept = std::isnan(value) ? 0 : std::clamp(value, 0.0, 1.0);
  if (in.Has("relu")) kept = std::isnan(value) ? value : std::max(value, 0.0);
  return Store(to, kept);
}

}  // namespace

uint64_t Compute(const Instruction& in, const uint64_t* s) {
  switch (in.opcode) {
    case Opcode::kMov:
      return in.type == Type::kPred ? s[0] : Narrow(in.type, s[0]);
    case Opcode::kSetp:
      return Compare(in, s);
    case Opcode::kSelp:
      return s[2] != 0 ? s[0] : s[1];
    case Opcode::kCvt:
      return Convert(in, s);
    default:
      return IsFloat(in.type) ? FloatOp(in, s) : IntegerOp(in, s);
  }
}

}  // namespace quire::simt::ptx
