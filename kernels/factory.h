#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/device.h"

namespace quire {

// Instruction-set paths of the CPU backend (--cpu-isa).
//   kScalar  the scalar twin: the same arithmetic without vector instructions; an oracle for tests, never chosen by
//            kAuto and not offered on the command line
enum class CpuIsa { kAuto, kScalar, kAvx2, kAvx512 };

// "auto", "scalar", "avx2", "avx512".
std::string_view Name(CpuIsa isa);

// The paths this machine can run, best last; always begins with kScalar. kAvx2 needs AVX2, FMA and F16C; kAvx512 needs
// AVX512F/BW/VL/DQ and AVX512_VNNI beside those.
std::vector<CpuIsa> AvailableCpuIsas();

struct BackendOptions {
  DeviceKind kind = DeviceKind::kCpu;
  CpuIsa cpu_isa = CpuIsa::kAuto;  // of kCpu only
  int32_t device_index = 0;        // of kCuda only
  bool deterministic = false;      // of kCuda only: the same bits whatever the batch, as the others have them anyway
  int32_t num_threads = 0;  // worker threads, the calling one included; 0: UsableCores (host_limits.h); at most 256
};

// Makes the backend. kUnimplemented for a device that is not compiled in; kUnavailable for an instruction set or a
// device that this machine lacks; kInvalidArgument naming the option for values out of range. kSim has no backend
// (model/sim_runner.h).
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options);

}  // namespace quire
