// Runs kernels from nvcc's PTX on the emulator's lanes. The kernel is found by the host function's symbol, which nvcc
// and g++ mangle alike; so the strings of inline assembly and nvcc's own code run, not their twins.
#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

#include "tests/simt/block.h"
#include "tests/simt/emulator_math.h"
#include "tests/simt/ptx.h"
#include "tests/simt/ptx_run.h"

namespace quire::simt {
namespace {

using ptx::Instruction;
using ptx::Kernel;
using ptx::Opcode;
using ptx::Operand;
using ptx::Space;
using ptx::Type;

std::unordered_map<std::string, Kernel> g_kernels;

// The launch now running. Static shared variables come first, dynamic shared memory after them.
struct Launch {
  const Kernel* kernel = nullptr;
  const unsigned char* parameters = nullptr;
  size_t dynamic_offset = 0;
};
Launch g_launch;

class LaneInterpreter {
 public:
  LaneInterpreter()
      : kernel_(*g_launch.kernel),
        registers_(static_cast<size_t>(kernel_.num_registers) + 1, 0xbadbadbadbadbad0ull),  // unset ones hold garbage
        local_(kernel_.local_bytes, 0xff),
        shared_(core::DynamicShared()) {}

  void Run() {
    for (size_t pc = 0; pc < kernel_.code.size(); ++pc) {
      const Instruction& in = kernel_.code[pc];
      if (in.predicate >= 0 && (registers_[in.predicate] != 0) == in.predicate_negated) continue;
      if (in.opcode == Opcode::kRet) return;
      if (in.opcode == Opcode::kBra) {
        pc = static_cast<size_t>(in.target) - 1;
      } else {
        Execute(in);
      }
    }
  }

 private:
  void Execute(const Instruction& in) {
    switch (in.opcode) {
      case Opcode::kMov:
        return Move(in);
      case Opcode::kLd:
        return Load(in);
      case Opcode::kSt:
        return Store(in);
      case Opcode::kCvta:
        return ConvertAddress(in);
      case Opcode::kBar:
        return Barrier(in);
      case Opcode::kShfl:
        return Shuffle(in);
      case Opcode::kVote:
        return Vote(in);
      case Opcode::kRedux:
        return Reduce(in);
      case Opcode::kMma:
        return MultiplyTiles(in);
      case Opcode::kLdMatrix:
        return LoadMatrices(in);
      case Opcode::kCp:
        return CopyAsync(in);
      case Opcode::kMbarrier:
        return Mbarrier(in);
      case Opcode::kWgmma:
        return Wgmma(in);
      case Opcode::kFence:
        return core::ThreadFence();
      case Opcode::kAtom:
      case Opcode::kRed:
        return Atomic(in);
      case Opcode::kNanosleep:
        return core::SpinPause(Site::current());
      case Opcode::kTrap:
        return ReportViolation("trap", "ptx line %d", in.line);
      default: {
        uint64_t sources[4] = {};
        for (size_t i = 1; i < in.operands.size() && i < 5; ++i) sources[i - 1] = Value(in.operands[i]);
        const uint64_t result = ptx::Compute(in, sources);
        const Operand& to = in.operands[0];
        // "p|q": the result and its opposite.
        Set(to.kind == Operand::Kind::kVector ? to.parts[0] : to, result);
        if (to.kind == Operand::Kind::kVector) Set(to.parts[1], result == 0);
      }
    }
  }

  // --- operands

  uint64_t SharedOffset(const std::string& name) const {
    const auto it = kernel_.shared.find(name);
    return it != kernel_.shared.end() ? it->second : g_launch.dynamic_offset;
  }

  static uint64_t Special(const Operand& operand) {
    const auto component = [&operand](const auto& v) -> uint64_t {
      return operand.reg == 0 ? v.x : operand.reg == 1 ? v.y : v.z;
    };
    switch (operand.value) {
      case 0:
        return component(g_identity->thread);
      case 1:
        return component(g_identity->block_dim);
      case 2:
        return component(g_identity->block);
      case 3:
        return component(g_identity->grid_dim);
      case 4:
        return static_cast<uint64_t>(core::LaneId());
      case 5:
        return static_cast<uint64_t>(core::WarpId());
      default:
        return core::DynamicSharedBytes() - g_launch.dynamic_offset;
    }
  }

  const unsigned char* Parameter(const std::string& name) const {
    for (const auto& [parameter, offset] : kernel_.parameters) {
      if (parameter == name) return g_launch.parameters + offset;
    }
    return nullptr;
  }

  uint64_t Value(const Operand& operand) const {
    switch (operand.kind) {
      case Operand::Kind::kRegister:
        return operand.negated ? registers_[operand.reg] == 0 : registers_[operand.reg];
      case Operand::Kind::kImmediate:
        return operand.value;
      case Operand::Kind::kSpecial:
        return Special(operand);
      default:
        break;
    }
    if (const unsigned char* parameter = Parameter(operand.name)) return reinterpret_cast<uint64_t>(parameter);
    if (operand.name == kernel_.local_name) return reinterpret_cast<uint64_t>(local_.data());
    return SharedOffset(operand.name);
  }

  uint32_t Value32(const Operand& operand) const { return static_cast<uint32_t>(Value(operand)); }
  float ValueF32(const Operand& operand) const { return __uint_as_float(Value32(operand)); }

  void Set(const Operand& operand, uint64_t value) {
    if (operand.kind == Operand::Kind::kRegister) registers_[operand.reg] = value;
  }
  void SetF32(const Operand& operand, float value) { Set(operand, __float_as_uint(value)); }

  // The memory that `bytes` at an address operand are in.
  unsigned char* Address(const Instruction& in, Space space, const Operand& operand, size_t bytes) {
    const uint64_t base = operand.reg >= 0 ? registers_[operand.reg] : 0;
    uint64_t address = 0;
    if (space == Space::kShared) {
      uint64_t offset = operand.reg >= 0 ? base & 0xffffffffu : SharedOffset(operand.name);
      offset = (offset + operand.value) & 0xffffffffu;
      if (offset + bytes > core::DynamicSharedBytes()) {
        ReportViolation("ptx-shared-out-of-bounds", "ptx line %d: offset %llu of %zu bytes", in.line,
                        static_cast<unsigned long long>(offset), core::DynamicSharedBytes());
        throw std::runtime_error("shared memory out of bounds");
      }
      address = reinterpret_cast<uint64_t>(shared_ + offset);
    } else if (operand.reg >= 0) {
      address = base + operand.value;
    } else {
      const unsigned char* parameter = Parameter(operand.name);
      const unsigned char* start = parameter != nullptr ? parameter : local_.data();
      address = reinterpret_cast<uint64_t>(start) + operand.value;
    }
    if (bytes > 0 && address % bytes != 0) ReportViolation("ptx-misaligned", "ptx line %d", in.line);
    return reinterpret_cast<unsigned char*>(address);
  }

  // --- moves and memory

  void Move(const Instruction& in) {
    const Operand &to = in.operands[0], &from = in.operands[1];
    const auto width_of = [&in](const Operand& vector) {
      return static_cast<int>(ptx::SizeOf(in.type)) * 8 / static_cast<int>(vector.parts.size());
    };
    if (to.kind == Operand::Kind::kVector) {
      const int width = width_of(to);
      const uint64_t value = Value(from), mask = (uint64_t{1} << width) - 1;
      for (size_t i = 0; i < to.parts.size(); ++i) Set(to.parts[i], (value >> (static_cast<int>(i) * width)) & mask);
    } else if (from.kind == Operand::Kind::kVector) {
      const int width = width_of(from);
      uint64_t value = 0;
      for (size_t i = 0; i < from.parts.size(); ++i) {
        value |= (Value(from.parts[i]) & ((uint64_t{1} << width) - 1)) << (static_cast<int>(i) * width);
      }
      Set(to, value);
    } else {
      const uint64_t value = Value(from);
      Set(to, ptx::Compute(in, &value));
    }
  }

  void Load(const Instruction& in) {
    const auto size = static_cast<size_t>(ptx::SizeOf(in.type));
    const unsigned char* from = Address(in, in.space, in.operands[1], size * static_cast<size_t>(in.vector));
    const Operand& to = in.operands[0];
    for (int i = 0; i < in.vector; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, from + static_cast<size_t>(i) * size, size);
      Set(to.kind == Operand::Kind::kVector ? to.parts[i] : to, ptx::Narrow(in.type, value));
    }
  }

  void Store(const Instruction& in) {
    const auto size = static_cast<size_t>(ptx::SizeOf(in.type));
    unsigned char* to = Address(in, in.space, in.operands[0], size * static_cast<size_t>(in.vector));
    const Operand& from = in.operands[1];
    for (int i = 0; i < in.vector; ++i) {
      const uint64_t value = Value(from.kind == Operand::Kind::kVector ? from.parts[i] : from);
      std::memcpy(to + static_cast<size_t>(i) * size, &value, size);
    }
  }

  // Addresses are host addresses, but those of shared memory are offsets.
  void ConvertAddress(const Instruction& in) {
    const uint64_t value = Value(in.operands[1]), base = reinterpret_cast<uint64_t>(shared_);
    if (in.space != Space::kShared) return Set(in.operands[0], value);
    Set(in.operands[0], in.Modifier(0) == "to" ? value - base : value + base);
  }

  template <typename T>
  void AtomicOn(const Instruction& in, const std::string& operation, unsigned char* address, uint64_t value,
                uint64_t other) {
    const bool is_signed = ptx::IsSigned(in.type);
    const auto less = [is_signed](T a, T b) {
      return is_signed ? static_cast<std::make_signed_t<T>>(a) < static_cast<std::make_signed_t<T>>(b) : a < b;
    };
    const T x = static_cast<T>(value);
    const T old = AtomicUpdate(reinterpret_cast<T*>(address), [&](T o) -> T {
      if (operation == "add") return o + x;
      if (operation == "exch") return x;
      if (operation == "cas") return o == x ? static_cast<T>(other) : o;
      if (operation == "and") return o & x;
      if (operation == "or") return o | x;
      if (operation == "min") return less(o, x) ? o : x;
      if (operation == "max") return less(o, x) ? x : o;
      throw std::runtime_error("atomic operation not known: " + operation);
    });
    if (in.opcode == Opcode::kAtom) Set(in.operands[0], old);
  }

  void Atomic(const Instruction& in) {
    const size_t first = in.opcode == Opcode::kRed ? 0 : 1;
    unsigned char* address = Address(in, in.space, in.operands[first], static_cast<size_t>(ptx::SizeOf(in.type)));
    const uint64_t value = Value(in.operands[first + 1]);
    const uint64_t other = in.operands.size() > first + 2 ? Value(in.operands[first + 2]) : 0;
    std::string operation;
    for (const std::string& m : in.modifiers) {
      for (const char* known : {"add", "min", "max", "and", "or", "exch", "cas"}) {
        if (m == known) operation = m;
      }
    }
    if (in.type == Type::kF32) {
      const float old = atomicAdd(reinterpret_cast<float*>(address), __uint_as_float(static_cast<uint32_t>(value)));
      if (in.opcode == Opcode::kAtom) SetF32(in.operands[0], old);
    } else if (ptx::SizeOf(in.type) == 4) {
      AtomicOn<uint32_t>(in, operation, address, value, other);
    } else {
      AtomicOn<uint64_t>(in, operation, address, value, other);
    }
  }

  // --- what lanes do together

  void Barrier(const Instruction& in) {
    if (in.Modifier(0) == "warp") return core::WarpBarrier(Value32(in.operands[0]), Site::current());
    const int id = in.operands.empty() ? 0 : static_cast<int>(Value(in.operands[0]));
    const int count = in.operands.size() > 1 ? static_cast<int>(Value(in.operands[1])) : -1;
    if (in.Has("red")) throw std::runtime_error("ptx line " + std::to_string(in.line) + ": bar.red not known");
    core::BlockBarrier(id, count, Site::current());
  }

  void Shuffle(const Instruction& in) {
    const auto& ops = in.operands;
    const std::string& mode = in.Modifier(1);
    const uint32_t value = Value32(ops[1]), mask = Value32(ops[4]);
    const int by = static_cast<int>(Value(ops[2])) & 31, c = static_cast<int>(Value(ops[3])), lane = core::LaneId();
    const int segment = (c >> 8) & 31, clamp = c & 31;
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    const int source = mode == "up"     ? lane - by
                       : mode == "down" ? lane + by
                       : mode == "bfly" ? lane ^ by
                                        : first | (by & ~segment);
    const bool valid = mode == "up" ? source >= last : source <= last;
    uint32_t result = value;
    core::Shuffle(mask, &value, 4, valid ? source : lane, &result, Site::current());
    const bool pair = ops[0].kind == Operand::Kind::kVector;
    Set(pair ? ops[0].parts[0] : ops[0], result);
    if (pair) Set(ops[0].parts[1], valid);
  }

  void Vote(const Instruction& in) {
    const uint32_t mask = Value32(in.operands[2]);
    const std::string& mode = in.Modifier(1);
    // "all" as "none not": lanes that have arrived may have exited when this one goes on.
    const bool asked = (Value(in.operands[1]) != 0) == (mode != "all");
    const uint32_t ballot = core::Ballot(mask, asked, Site::current());
    Set(in.operands[0], mode == "ballot" ? ballot : mode == "any" ? ballot != 0 : ballot == 0);
  }

  void Reduce(const Instruction& in) {
    const uint32_t value = Value32(in.operands[1]);
    uint32_t all[32];
    const uint32_t present = core::Gather(Value32(in.operands[2]), &value, all, Site::current());
    const std::string& mode = in.Modifier(1);
    const bool is_signed = ptx::IsSigned(in.type);
    const auto combine = [&](uint32_t a, uint32_t b) {
      if (mode == "add") return a + b;
      if (mode == "and") return a & b;
      if (mode == "or") return a | b;
      if (mode == "xor") return a ^ b;
      const bool less = is_signed ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b;
      return less == (mode == "min") ? a : b;
    };
    uint32_t result = 0;
    bool first = true;
    for (int i = 0; i < 32; ++i) {
      if (((present >> i) & 1) == 0) continue;
      result = first ? all[i] : combine(result, all[i]);
      first = false;
    }
    Set(in.operands[0], result);
  }

  void MultiplyTiles(const Instruction& in) {
    const auto& ops = in.operands;
    uint32_t a[4], b[2];
    float c[4], d[4];
    for (size_t i = 0; i < 4; ++i) a[i] = Value32(ops[1].parts[i]), c[i] = ValueF32(ops[3].parts[i]);
    for (size_t i = 0; i < 2; ++i) b[i] = Value32(ops[2].parts[i]);
    const auto kind = in.Has("m16n8k32") ? core::Mma::kE4m3M16N8K32
                      : in.Has("bf16")   ? core::Mma::kBf16M16N8K16
                                         : core::Mma::kF16M16N8K16;
    core::WarpMma(kind, a, b, c, d, Site::current());
    for (size_t i = 0; i < 4; ++i) SetF32(ops[0].parts[i], d[i]);
  }

  void LoadMatrices(const Instruction& in) {
    const int count = in.Has("x4") ? 4 : in.Has("x2") ? 2 : 1, lane = core::LaneId();
    const bool transposed = in.Has("trans");
    const void* rows[8];
    core::LdMatrixRows(Address(in, Space::kShared, in.operands[1], 16), count, transposed, rows, Site::current());
    const Operand& to = in.operands[0];
    for (int m = 0; m < count; ++m) {
      uint32_t value;
      if (transposed) {
        uint16_t low, high;
        std::memcpy(&low, static_cast<const uint16_t*>(rows[2 * m]) + lane / 4, 2);
        std::memcpy(&high, static_cast<const uint16_t*>(rows[2 * m + 1]) + lane / 4, 2);
        value = low | static_cast<uint32_t>(high) << 16;
      } else {
        std::memcpy(&value, static_cast<const uint32_t*>(rows[m]) + lane % 4, 4);
      }
      Set(to.kind == Operand::Kind::kVector ? to.parts[m] : to, value);
    }
  }

  void CopyAsync(const Instruction& in) {
    const auto& ops = in.operands;
    if (in.Has("commit_group")) return core::CommitCopies();
    if (in.Has("wait_group")) return core::WaitCopies(static_cast<int>(Value(ops[0])));
    if (in.Has("wait_all")) return core::WaitCopies(-1);
    if (in.Has("tensor")) {
      // [destination], [map, {x, y}], [barrier]
      const auto& coordinates = ops[1].parts[1].parts;
      return core::TmaLoad2d(Address(in, Space::kShared, ops[0], 0), Address(in, Space::kGeneric, ops[1].parts[0], 0),
                             reinterpret_cast<uint64_t*>(Address(in, Space::kShared, ops[2], 8)),
                             static_cast<int>(Value(coordinates[0])), static_cast<int>(Value(coordinates[1])));
    }
    const int bytes = static_cast<int>(Value(ops[2]));
    const int source_bytes = ops.size() > 3 ? static_cast<int>(Value(ops[3])) : bytes;
    core::CopyAsync(Address(in, Space::kShared, ops[0], static_cast<size_t>(bytes)),
                    Address(in, Space::kGeneric, ops[1], 0), bytes, source_bytes);
  }

  // --- sm_90

  void Mbarrier(const Instruction& in) {
    const auto& ops = in.operands;
    const bool has_result = in.Modifier(0) != "init";
    auto* barrier = reinterpret_cast<uint64_t*>(Address(in, Space::kShared, ops[has_result ? 1 : 0], 8));
    const auto argument = [&](size_t i) { return ops.size() > i ? Value32(ops[i]) : 0; };
    if (in.Modifier(0) == "init") return core::MbarrierInit(barrier, argument(1));
    if (in.Modifier(0) == "arrive") return core::MbarrierArrive(barrier, in.Has("expect_tx") ? argument(2) : 0);
    // try_wait.parity: the loop around it is the kernel's.
    const bool done = core::MbarrierTest(barrier, argument(2));
    if (!done) core::SpinPause(Site::current());
    Set(ops[0], done);
  }

  void Wgmma(const Instruction& in) {
    const auto& ops = in.operands;
    if (in.Has("fence")) return;
    if (in.Has("commit_group")) return core::WgmmaCommit();
    if (in.Has("wait_group")) {
      // The registers of products that the wait covers get their values.
      core::WgmmaWait(static_cast<int>(Value(ops[0])));
      for (size_t i = 0; i < accumulator_registers_.size(); ++i) {
        registers_[accumulator_registers_[i]] = __float_as_uint(accumulators_[i]);
      }
      return;
    }
    accumulator_registers_.clear();
    for (size_t i = 0; i < 32; ++i) {
      const int reg = ops[0].parts[i].reg;
      accumulator_registers_.push_back(reg);
      accumulators_[i] = __uint_as_float(static_cast<uint32_t>(registers_[reg]));
    }
    core::WgmmaM64N64K16(accumulators_, Value(ops[1]), Value(ops[2]));
    for (size_t i = 0; i < 32; ++i) registers_[accumulator_registers_[i]] = __float_as_uint(accumulators_[i]);
  }

  const Kernel& kernel_;
  std::vector<uint64_t> registers_;
  std::vector<unsigned char> local_;
  unsigned char* const shared_;
  std::vector<int> accumulator_registers_;
  float accumulators_[32];
};

}  // namespace

void ReadPtx(const std::string& path) {
  ptx::Parse(path, &g_kernels);
  options().strict_sites = false;  // all of an opcode have one place in the source
}

namespace core {

bool PtxIsLoaded() { return !g_kernels.empty(); }

cudaError_t RunPtx(const LaunchConfig& config, const void* function, const void* const* arguments, const size_t* sizes,
                   int count) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_sname == nullptr) {
    throw std::runtime_error("a kernel has no symbol: link with -rdynamic");
  }
  const auto it = g_kernels.find(info.dli_sname);
  if (it == g_kernels.end()) throw std::runtime_error(std::string("not in the PTX: ") + info.dli_sname);
  const Kernel& kernel = it->second;
  if (static_cast<int>(kernel.parameters.size()) != count) throw std::runtime_error("number of kernel parameters");
  alignas(64) static unsigned char parameters[4096];
  for (int i = 0; i < count; ++i) std::memcpy(parameters + kernel.parameters[i].second, arguments[i], sizes[i]);
  const size_t dynamic_offset = (kernel.shared_bytes + 1023) / 1024 * 1024;
  g_launch = {&kernel, parameters, dynamic_offset};
  LaunchConfig with_static = config;
  with_static.shared_bytes = dynamic_offset + config.shared_bytes;
  return RunGrid(
      with_static, [](void*) { LaneInterpreter().Run(); }, nullptr);
}

}  // namespace core
}  // namespace quire::simt
