#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// nvcc's PTX, parsed: what the interpreter runs lane by lane. Only the part of PTX that nvcc makes of our kernels;
// anything else is refused with its line. Errors are std::runtime_error: a test's input is wrong.
namespace quire::simt::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBf16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBf16x2,
  kB64,
  kU64,
  kS64,
  kF64,
  kE4m3x2,
  kE5m2x2,
  kB128
};

// Bytes of a value in memory.
int SizeOf(Type type);
bool IsSigned(Type type);
// `bits` cut to the type's width, then sign-extended for signed types.
uint64_t Narrow(Type type, uint64_t bits);

enum class Opcode : uint8_t {
  kMov,
  kLd,
  kSt,
  kAdd,
  kSub,
  kMul,
  kMad,
  kDiv,
  kRem,
  kFma,
  kMin,
  kMax,
  kNeg,
  kAbs,
  kAnd,
  kOr,
  kXor,
  kNot,
  kLop3,
  kShl,
  kShr,
  kShf,
  kSetp,
  kSelp,
  kCvt,
  kCvta,
  kBra,
  kBar,
  kShfl,
  kVote,
  kMma,
  kLdMatrix,
  kCp,
  kFence,
  kAtom,
  kRed,
  kRet,
  kEx2,
  kLg2,
  kRcp,
  kSqrt,
  kRsqrt,
  kTanh,
  kBfi,
  kBfe,
  kPopc,
  kClz,
  kBrev,
  kPrmt,
  kNanosleep,
  kTrap,
  kRedux,
  kMbarrier,
  kWgmma,
  kNothing
};

enum class Space : uint8_t { kGeneric, kShared, kParam, kLocal };

struct Operand {
  // kSymbol: a parameter, shared or local variable by its name, or a label. kSpecial: %tid and so on.
  enum class Kind : uint8_t { kRegister, kImmediate, kAddress, kVector, kSymbol, kSpecial };
  Kind kind = Kind::kSymbol;
  int reg = -1;          // of kRegister; base of kAddress, or -1; component 0..2 of kSpecial
  uint64_t value = 0;    // of kImmediate; offset of kAddress; which one of kSpecial
  bool negated = false;  // a predicate
  std::string name;
  std::vector<Operand> parts;
};

struct Instruction {
  Opcode opcode = Opcode::kNothing;
  std::vector<std::string> modifiers;  // what follows the opcode between dots
  Type type = Type::kNone, source_type = Type::kNone;
  Space space = Space::kGeneric;
  int predicate = -1;
  bool predicate_negated = false;
  bool wide = false, high = false;
  int vector = 1;
  std::vector<Operand> operands;
  int target = -1;  // of a branch
  int line = 0;

  bool Has(const char* modifier) const;
  // The i-th modifier, or "".
  const std::string& Modifier(size_t i) const;
};

struct Kernel {
  std::vector<Instruction> code;
  int num_registers = 0;
  std::vector<std::pair<std::string, size_t>> parameters;  // name, offset
  size_t parameter_bytes = 0;
  std::unordered_map<std::string, size_t> shared;  // static variables: offset
  size_t shared_bytes = 0;
  std::string local_name;
  size_t local_bytes = 0;
};

// Adds the kernels of a file to `kernels`, by mangled name.
void Parse(const std::string& path, std::unordered_map<std::string, Kernel>* kernels);

// The result of an instruction without side effects, on the raw bits of its sources.
uint64_t Compute(const Instruction& instruction, const uint64_t* sources);

}  // namespace quire::simt::ptx
