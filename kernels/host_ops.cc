#include "kernels/host_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/status_macros.h"

namespace quire {

absl::Status HostOps::RopeTable(const RopeTableParams& params) {
  Finish();
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckRopeTable(params));
  const F32Matrix cos_sin = params.cos_sin.f32();
  const int64_t half = static_cast<int64_t>(params.inv_freq.size());
  const double factor = params.attention_factor;
  pool_.ParallelFor(cos_sin.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = cos_sin.row(t);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(params.positions[t]) * static_cast<double>(params.inv_freq[i]);
        row[i] = static_cast<float>(std::cos(angle) * factor);
        row[half + i] = static_cast<float>(std::sin(angle) * factor);
      }
    }
  });
  return absl::OkStatus();
}

absl::Status HostOps::GatherRows(const GatherRowsParams& params) {
  Finish();
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckGatherRows(params));
  const F32Matrix x = params.x.f32(), out = params.out.f32();
  for (int64_t i = 0; i < out.rows; ++i) {
    std::copy_n(x.row(params.rows[i]), x.cols, out.row(i));
  }
  return absl::OkStatus();
}

absl::Status HostOps::CopyBlocks(const CopyBlocksParams& params) {
  Finish();
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckCopyBlocks(params));
  const int64_t bytes = params.kv.bytes_per_block();
  const auto address = [&params, bytes](int64_t block) {
    const int64_t on_host = block - params.kv.num_blocks;
    return on_host < 0 ? static_cast<char*>(params.kv.data) + block * bytes
                       : static_cast<char*>(params.host.data) + on_host * params.host.stride;
  };
  for (const BlockCopyIds& copy : params.copies) {
    std::memmove(address(copy.dst), address(copy.src), static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status HostOps::SampleTokens(const SampleTokensParams& params) {
  Finish();
  OpTimer timer(&times_.sampling);
  return quire::SampleTokens(params, pool_, absl::MakeSpan(sampling_scratch_));
}

}  // namespace quire
