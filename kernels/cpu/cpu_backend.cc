#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/huge_memory.h"

namespace quire {
namespace {

const GemmKernels& GemmKernelsOf(CpuIsa isa) {
  if (isa == CpuIsa::kAvx512) return GemmKernelsAvx512();
  return isa == CpuIsa::kAvx2 ? GemmKernelsAvx2() : GemmKernelsScalar();
}

const VectorKernels& VectorKernelsOf(CpuIsa isa) {
  if (isa == CpuIsa::kAvx512) return VectorKernelsAvx512();
  return isa == CpuIsa::kAvx2 ? VectorKernelsAvx2() : VectorKernelsScalar();
}

class CpuBackend : public Backend {
 public:
  CpuBackend(CpuIsa isa, int num_threads)
      : ops_({GemmKernelsOf(isa), VectorKernelsOf(isa)}, num_threads), name_(VectorKernelsOf(isa).name) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string Describe() const override { return absl::StrFormat("cpu %s %d threads", name_, ops_.num_threads()); }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override { return AllocateHugeMemory(bytes); }
  DType default_kv_dtype(DType model) const override { return model == DType::kF32 ? DType::kF32 : DType::kF16; }
  bool supports_kv_dtype(DType dtype) const override {
    return std::find(kCpuKvTypes.begin(), kCpuKvTypes.end(), dtype) != kCpuKvTypes.end();
  }
  Ops& ops() override { return ops_; }

 private:
  CpuOps ops_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Backend> CreateCpuBackend(CpuIsa isa, int num_threads) {
  return std::make_unique<CpuBackend>(isa, num_threads);
}

}  // namespace quire
