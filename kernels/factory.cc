#include "kernels/factory.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "kernels/cpu/cpu_features.h"

namespace quire {

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
  return absl::UnimplementedError(absl::StrFormat("device %s is not compiled in", Name(options.kind)));
}

}  // namespace quire
