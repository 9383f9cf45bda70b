#include "kernels/factory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#ifdef QUIRE_WITH_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif
#include "kernels/host_limits.h"
#include "kernels/reference/reference_backend.h"

namespace quire {

constexpr int kMaxThreads = 256;

std::string_view Name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAuto:
      return "auto";
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::vector<CpuIsa> AvailableCpuIsas() {
  std::vector<CpuIsa> isas = {CpuIsa::kScalar};
  if (GetCpuFeatures().avx2) isas.push_back(CpuIsa::kAvx2);
  if (GetCpuFeatures().avx512_vnni) isas.push_back(CpuIsa::kAvx512);
  return isas;
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const BackendOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_threads is %d, expected 0..%d", options.num_threads, kMaxThreads));
  }
  const int num_threads = options.num_threads == 0 ? std::min(UsableCores(), kMaxThreads) : options.num_threads;
  if (options.kind == DeviceKind::kReference) return CreateReferenceBackend(num_threads);
  if (options.kind == DeviceKind::kCpu) {
    const std::vector<CpuIsa> available = AvailableCpuIsas();
    const CpuIsa isa = options.cpu_isa == CpuIsa::kAuto ? available.back() : options.cpu_isa;
    if (std::find(available.begin(), available.end(), isa) == available.end()) {
      return absl::UnavailableError(absl::StrFormat("cpu_isa %s is not available on this machine", Name(isa)));
    }
    if (isa == CpuIsa::kScalar && options.cpu_isa == CpuIsa::kAuto) {
      return absl::UnavailableError("the cpu device needs AVX2, FMA and F16C; use the reference device");
    }
    return CreateCpuBackend(isa, num_threads);
  }
#ifdef QUIRE_WITH_CUDA
  if (options.kind == DeviceKind::kCuda) {
    return CreateCudaBackend({options.device_index, options.deterministic, num_threads});
  }
#endif
  return absl::UnimplementedError(absl::StrFormat("device %s is not compiled in", Name(options.kind)));
}

}  // namespace quire
