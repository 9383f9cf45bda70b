#include "kernels/cuda/cuda_backend.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime.h"

namespace quire {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(const CudaBackendOptions& options, const cuda::DeviceInfo& device, cuda::Stream stream)
      : device_(device), stream_(stream), ops_(device, stream, options.deterministic, options.num_threads) {}
  ~CudaBackend() override { cuda::DestroyStream(stream_); }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string Describe() const override { return absl::StrFormat("cuda %s", device_.name); }
  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    QUIRE_ASSIGN_OR_RETURN(void* data, cuda::AllocateDevice(bytes));
    return Buffer(data, bytes, &cuda::FreeDevice);
  }
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes) override {
    QUIRE_ASSIGN_OR_RETURN(void* data, cuda::AllocatePinned(bytes));
    return Buffer(data, bytes, &cuda::FreePinned);
  }
  absl::Status CopyToDevice(void* to, const void* from, int64_t bytes) override {
    QUIRE_RETURN_IF_ERROR(cuda::CopyAsync(to, from, bytes, stream_));
    return cuda::Synchronize(stream_);
  }
  absl::StatusOr<std::optional<int64_t>> FreeBytes() override { return cuda::FreeDeviceBytes(); }
  absl::Status broken() const override { return ops_.broken(); }
  bool host_reads_memory() const override { return device_.host_reads_memory; }
  DType default_kv_dtype(DType model) const override { return model == DType::kBf16 ? DType::kBf16 : DType::kF16; }
  bool supports_kv_dtype(DType dtype) const override {
    return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kFp8E4m3 || dtype == DType::kI8;
  }
  Ops& ops() override { return ops_; }

 private:
  const cuda::DeviceInfo device_;
  const cuda::Stream stream_;
  CudaOps ops_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const cuda::DeviceInfo device, cuda::OpenDevice(options.device_index));
  QUIRE_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::CreateStream());
  return std::make_unique<CudaBackend>(options, device, stream);
}

}  // namespace quire
