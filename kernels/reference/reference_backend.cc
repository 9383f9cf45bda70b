#include "kernels/reference/reference_backend.h"

#include "absl/strings/str_format.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/reference/reference_ops.h"

namespace quire {
namespace {

class ReferenceBackend : public Backend {
 public:
  explicit ReferenceBackend(int num_threads) : ops_(num_threads) {}

  DeviceKind kind() const override { return DeviceKind::kReference; }
  std::string Describe() const override { return absl::StrFormat("reference %d threads", ops_.num_threads()); }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override { return AllocateHugeMemory(bytes); }
  DType default_kv_dtype(DType) const override { return DType::kF32; }
  bool supports_kv_dtype(DType dtype) const override { return dtype == DType::kF32; }
  Ops& ops() override { return ops_; }

 private:
  reference::ReferenceOps ops_;
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend(int num_threads) {
  return std::make_unique<ReferenceBackend>(num_threads);
}

}  // namespace quire
