#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/attention_instance.cuh"
#include "kernels/cuda/copy_batches.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/paged_decode.cuh"
#include "kernels/cuda/paged_prefill.cuh"
#include "kernels/cuda/rope_store.cuh"
#include "kernels/cuda/weight_packing.h"

namespace quire {
namespace {

using cuda::CudaAttentionPlan;
using cuda::DeviceTensor;
using cuda::KvCacheView;
using cuda::KvStorage;
using cuda::PagedDecodeParams;
using cuda::PagedPrefillParams;

DeviceTensor DeviceOf(const TensorView& view) { return {view.data, view.dtype, view.stride}; }

int32_t Count(int64_t count) { return static_cast<int32_t>(count); }

// What the kernels take besides what every backend checks.
absl::Status CheckKvLayout(const char* op, const PagedKvView& kv) {
  if (kv.block_size != 16 && kv.block_size != 32 && kv.block_size != 64) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: blocks have %d tokens; device cuda has 16, 32 and 64", op, kv.block_size));
  }
  if (kv.head_dim % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: head_dim is %d; device cuda has multiples of 4", op, kv.head_dim));
  }
  return CheckKvType(op, kv, {DType::kF16, DType::kBf16, DType::kFp8E4m3, DType::kI8});
}

KvStorage StorageOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return KvStorage::kBf16;
    case DType::kFp8E4m3:
      return KvStorage::kE4m3;
    case DType::kI8:
      return KvStorage::kInt8;
    default:  // CheckKvLayout lets no other pass
      return KvStorage::kF16;
  }
}

KvCacheView CacheOf(const PagedKvView& kv) {
  KvCacheView view;
  view.data = static_cast<unsigned char*>(kv.data);
  view.storage = StorageOf(kv.dtype);
  view.block_size = kv.block_size;
  view.num_kv_heads = kv.num_kv_heads;
  view.head_dim = kv.head_dim;
  return view;
}

// What both attention kernels take.
template <typename Params>
Params AttentionParams(const PagedAttentionParams& params) {
  Params out;
  out.q = DeviceOf(params.q);
  out.out = DeviceOf(params.out);
  out.kv = CacheOf(params.kv);
  out.num_heads = params.num_heads;
  out.scale = params.scale;
  out.softcap = params.logit_softcap;
  out.window = params.window;
  out.sinks = params.sinks;
  out.alibi_slopes = params.alibi_slopes;
  out.logsumexp = static_cast<float*>(params.logsumexp.data);
  return out;
}

// A view that kernels take as one run of memory.
absl::Status CheckContiguous(const char* what, const TensorView& view) {
  if (view.data == nullptr || view.rows <= 1 || view.stride == view.cols) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has stride %d for %d columns; device cuda takes no gaps", what, view.stride, view.cols));
}

}  // namespace

// --- waiting

absl::Status CudaOps::Settle() {
  OpTimer timer(&times_.other);
  if (broken_.ok()) broken_ = cuda::Synchronize(stream_);
  if (broken_.ok()) staging_.Reset();
  return broken_;
}

absl::Status CudaOps::EndOp(int error, const char* op) {
  if (broken_.ok()) broken_ = cuda::DeviceStatus(error, op);
  return in_step_ ? broken_ : Settle();
}

void CudaOps::EndStep() {
  (void)Settle();  // the next op reports it
  in_step_ = false;
}

absl::Status CudaOps::Reserve(int64_t bytes, Buffer* buffer) {
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  // Kernels that are on their way may use what goes; copies of the step's arrays stay.
  if (broken_.ok()) broken_ = cuda::Synchronize(stream_);
  QUIRE_RETURN_IF_ERROR(broken_);
  *buffer = Buffer();
  QUIRE_ASSIGN_OR_RETURN(void* data, cuda::AllocateDevice(bytes));
  *buffer = Buffer(data, bytes, &cuda::FreeDevice);
  return absl::OkStatus();
}

// --- weights

absl::StatusOr<std::unique_ptr<PackedWeight>> CudaOps::PackWeight(absl::Span<const WeightView> parts) {
  QUIRE_RETURN_IF_ERROR(CheckPackWeight(parts));
  QUIRE_RETURN_IF_ERROR(broken_);
  int64_t rows = 0, bytes = 0;
  for (const WeightView& part : parts) rows += part.rows;
  if (rows > INT32_MAX || parts[0].cols > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrFormat("PackWeight: [%d, %d] is above %d rows or columns", rows, parts[0].cols, INT32_MAX));
  }
  std::vector<CudaPackedWeight::Part> packed;
  for (const cuda::HostWeight& host : cuda::PackParts(parts)) {
    const auto size = static_cast<int64_t>(host.bytes.size());
    QUIRE_ASSIGN_OR_RETURN(void* data, cuda::AllocateDevice(size));
    CudaPackedWeight::Part& part = packed.emplace_back();
    part.first_row = host.first_row;
    part.memory = Buffer(data, size, &cuda::FreeDevice);
    part.weight = host.At(part.memory.as<const unsigned char>());
    QUIRE_RETURN_IF_ERROR(cuda::CopyAsync(data, host.bytes.data(), size, stream_));
    QUIRE_RETURN_IF_ERROR(Settle());
    bytes += size;
  }
  return std::make_unique<CudaPackedWeight>(std::move(packed), rows, parts[0].cols, bytes);
}

absl::Status CudaOps::RunLinear(const LinearParams& params, bool add) {
  QUIRE_RETURN_IF_ERROR(CheckLinear(params));
  const auto& weight = static_cast<const CudaPackedWeight&>(*params.weight);
  const int32_t rows = Count(params.x.rows);
  QUIRE_RETURN_IF_ERROR(Reserve(cuda::PreparedBytes(rows, weight.blocks()), &prepared_));
  QUIRE_RETURN_IF_ERROR(Reserve(rows * int64_t{4}, &prepared_scales_));
  int error = cuda::LaunchPrepareRows({.x = DeviceOf(params.x),
                                       .out = prepared_.as<unsigned char>(),
                                       .scales = prepared_scales_.as<float>(),
                                       .rows = rows,
                                       .cols = Count(params.x.cols),
                                       .blocks = weight.blocks()},
                                      stream_);
  for (const CudaPackedWeight::Part& part : weight.parts()) {
    if (error != cudaSuccess) break;
    error = cuda::LaunchLinear({.x = prepared_.as<const unsigned char>(),
                                .x_scales = prepared_scales_.as<const float>(),
                                .weight = part.weight,
                                .bias = params.bias == nullptr ? nullptr : params.bias + part.first_row,
                                .out = DeviceOf(params.out),
                                .rows = rows,
                                .first_column = part.first_row,
                                .add = add},
                               stream_);
  }
  return EndOp(error, add ? "LinearAdd" : "Linear");
}

absl::Status CudaOps::EmbeddingLookup(const EmbeddingLookupParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckEmbeddingLookup(params));
  QUIRE_ASSIGN_OR_RETURN(const int32_t* ids, staging_.Upload(params.ids));
  int error = cudaSuccess;
  for (const CudaPackedWeight::Part& part : static_cast<const CudaPackedWeight&>(*params.table).parts()) {
    if (error != cudaSuccess) break;
    error = cuda::LaunchEmbedding({.ids = ids,
                                   .table = part.weight,
                                   .first_id = part.first_row,
                                   .out = DeviceOf(params.out),
                                   .tokens = Count(params.out.rows),
                                   .cols = Count(params.out.cols)},
                                  stream_);
  }
  return EndOp(error, "EmbeddingLookup");
}

// --- rows

absl::Status CudaOps::AddRmsNorm(const AddRmsNormParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckAddRmsNorm(params));
  const int error = cuda::LaunchAddRmsNorm({.residual = DeviceOf(params.residual),
                                            .delta = DeviceOf(params.delta),
                                            .out = DeviceOf(params.out),
                                            .weight = params.weight,
                                            .epsilon = params.epsilon,
                                            .rows = Count(params.residual.rows),
                                            .cols = Count(params.residual.cols)},
                                           stream_);
  return EndOp(error, "AddRmsNorm");
}

absl::Status CudaOps::SiluMul(const SiluMulParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckSiluMul(params));
  const int error = cuda::LaunchGatedActivation({.gate_up = DeviceOf(params.gate_up),
                                                 .out = DeviceOf(params.out),
                                                 .activation = cuda::Activation::kSilu,
                                                 .rows = Count(params.out.rows),
                                                 .cols = Count(params.out.cols)},
                                                stream_);
  return EndOp(error, "SiluMul");
}

absl::Status CudaOps::GatherRows(const GatherRowsParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckGatherRows(params));
  QUIRE_ASSIGN_OR_RETURN(const int32_t* rows, staging_.Upload(params.rows));
  const int error = cuda::LaunchGatherRows({.from = DeviceOf(params.x),
                                            .out = DeviceOf(params.out),
                                            .index = rows,
                                            .rows = Count(params.out.rows),
                                            .cols = Count(params.out.cols)},
                                           stream_);
  return EndOp(error, "GatherRows");
}

// --- positions and the cache

// The table is made on the host, in double, and twice as long whenever it is too short.
absl::Status CudaOps::GrowRopeTable(const RopeTableParams& params, int64_t positions) {
  const auto half = static_cast<int64_t>(params.inv_freq.size());
  const bool same =
      rope_factor_ == params.attention_factor &&
      std::equal(rope_inv_freq_.begin(), rope_inv_freq_.end(), params.inv_freq.begin(), params.inv_freq.end());
  if (same && positions <= rope_positions_) return absl::OkStatus();
  positions = std::max<int64_t>(256, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(positions))));
  const double factor = params.attention_factor;
  std::vector<float> table(positions * 2 * half);
  for (int64_t p = 0; p < positions; ++p) {
    float* row = table.data() + p * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * static_cast<double>(params.inv_freq[i]);
      row[i] = static_cast<float>(std::cos(angle) * factor);
      row[half + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  const auto bytes = static_cast<int64_t>(table.size() * sizeof(float));
  rope_positions_ = 0;
  QUIRE_RETURN_IF_ERROR(Reserve(bytes, &rope_table_));
  QUIRE_RETURN_IF_ERROR(cuda::CopyAsync(rope_table_.data(), table.data(), bytes, stream_));
  if (broken_.ok()) broken_ = cuda::Synchronize(stream_);  // the table goes
  QUIRE_RETURN_IF_ERROR(broken_);
  rope_positions_ = positions;
  rope_inv_freq_.assign(params.inv_freq.begin(), params.inv_freq.end());
  rope_factor_ = params.attention_factor;
  return absl::OkStatus();
}

absl::Status CudaOps::RopeTable(const RopeTableParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckRopeTable(params));
  if (params.positions.empty() || params.inv_freq.empty()) return absl::OkStatus();
  const int32_t last = *std::max_element(params.positions.begin(), params.positions.end());
  QUIRE_RETURN_IF_ERROR(GrowRopeTable(params, int64_t{last} + 1));
  QUIRE_ASSIGN_OR_RETURN(const int32_t* positions, staging_.Upload(params.positions));
  const int error = cuda::LaunchGatherRows({.from = {rope_table_.data(), DType::kF32, params.cos_sin.cols},
                                            .out = DeviceOf(params.cos_sin),
                                            .index = positions,
                                            .rows = Count(params.cos_sin.rows),
                                            .cols = Count(params.cos_sin.cols)},
                                           stream_);
  return EndOp(error, "RopeTable");
}

absl::Status CudaOps::RopeAndStoreKv(const RopeAndStoreKvParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckRopeAndStoreKv(params));
  QUIRE_RETURN_IF_ERROR(CheckKvLayout("RopeAndStoreKv", params.kv));
  QUIRE_RETURN_IF_ERROR(CheckContiguous("RopeAndStoreKv: cos_sin", params.cos_sin));
  QUIRE_ASSIGN_OR_RETURN(const int32_t* slots, staging_.UploadOnce(params.slot_mapping));
  const int error = cuda::LaunchRopeStore({.qkv = DeviceOf(params.qkv),
                                           .cos_sin = static_cast<const float*>(params.cos_sin.data),
                                           .slots = slots,
                                           .kv = CacheOf(params.kv),
                                           .tokens = Count(params.qkv.rows),
                                           .num_heads = params.num_heads,
                                           .rotary_dim = Count(params.cos_sin.cols)},
                                          stream_);
  return EndOp(error, "RopeAndStoreKv");
}

absl::Status CudaOps::CopyBlocks(const CopyBlocksParams& params) {
  static_assert(sizeof(cuda::BlockCopyPair) == sizeof(BlockCopyIds));
  QUIRE_RETURN_IF_ERROR(CheckCopyBlocks(params));
  QUIRE_RETURN_IF_ERROR(CheckKvLayout("CopyBlocks", params.kv));
  QUIRE_ASSIGN_OR_RETURN(const BlockCopyIds* copies, staging_.Upload(params.copies));
  int error = cudaSuccess;
  int32_t begin = 0;
  for (const int32_t end : cuda::IndependentCopies(params.copies)) {
    if (error != cudaSuccess) break;
    error = cuda::LaunchCopyBlocks({.cache = static_cast<unsigned char*>(params.kv.data),
                                    .host = static_cast<unsigned char*>(params.host.data),
                                    .num_blocks = params.kv.num_blocks,
                                    .block_bytes = params.kv.bytes_per_block(),
                                    .host_stride = params.host.stride,
                                    .copies = reinterpret_cast<const cuda::BlockCopyPair*>(copies) + begin,
                                    .count = end - begin},
                                   stream_);
    begin = end;
  }
  return EndOp(error, "CopyBlocks");
}

// --- attention

absl::Status CudaOps::PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) {
  QUIRE_RETURN_IF_ERROR(CheckAttentionBatch(batch));
  staging_.Forget();  // arrays of the last plan may lie where those of this one do
  static_cast<CudaAttentionPlan&>(plan).Begin(batch, /*decodes=*/!deterministic_);
  return absl::OkStatus();
}

absl::Status CudaOps::PagedAttention(const PagedAttentionParams& params) {
  if (params.plan == nullptr) return absl::InvalidArgumentError("PagedAttention: no plan");
  // Cuts are made when a layer wants them; the model passes the plan as constant to every layer.
  auto& plan = const_cast<CudaAttentionPlan&>(static_cast<const CudaAttentionPlan&>(*params.plan));
  const AttentionBatch& batch = plan.batch();
  QUIRE_RETURN_IF_ERROR(CheckPagedAttention(params, batch));
  QUIRE_RETURN_IF_ERROR(CheckKvLayout("PagedAttention", params.kv));
  QUIRE_RETURN_IF_ERROR(CheckContiguous("PagedAttention: logsumexp", params.logsumexp));
  const int32_t group = params.num_heads / params.kv.num_kv_heads;
  if (group > 16) {
    return absl::InvalidArgumentError(
        absl::StrFormat("PagedAttention: %d query heads a KV head; device cuda has up to 16", group));
  }
  if (cuda::FindAttentionInstance(CacheOf(params.kv), params.num_heads) == nullptr) {
    return absl::UnimplementedError(absl::StrFormat("PagedAttention: head size %d is not built for a KV cache of %s",
                                                    params.kv.head_dim, Name(params.kv.dtype)));
  }
  if (batch.context_lens.empty()) return absl::OkStatus();
  const int32_t target_splits = std::max(1, 2 * device_.multiprocessors / params.kv.num_kv_heads);
  const CudaAttentionPlan::Cut& cut = plan.CutFor(params.window, group, target_splits);
  QUIRE_ASSIGN_OR_RETURN(const int32_t* tables, staging_.UploadOnce(batch.block_tables));
  QUIRE_ASSIGN_OR_RETURN(const int32_t* context_lens, staging_.UploadOnce(batch.context_lens));
  if (!plan.is_decode()) {
    auto prefill = AttentionParams<PagedPrefillParams>(params);
    prefill.block_tables = tables, prefill.table_stride = batch.block_table_stride;
    prefill.context_lens = context_lens;
    QUIRE_ASSIGN_OR_RETURN(prefill.cu_q_lens, staging_.UploadOnce(batch.cu_q_lens));
    QUIRE_ASSIGN_OR_RETURN(prefill.tiles, staging_.UploadOnce(absl::MakeConstSpan(cut.tiles)));
    prefill.num_tiles = Count(static_cast<int64_t>(cut.tiles.size()));
    return EndOp(cuda::LaunchPagedPrefill(prefill, stream_), "PagedAttention");
  }
  auto decode = AttentionParams<PagedDecodeParams>(params);
  decode.block_tables = tables, decode.table_stride = batch.block_table_stride;
  decode.context_lens = context_lens;
  decode.sequences = Count(static_cast<int64_t>(batch.context_lens.size()));
  QUIRE_ASSIGN_OR_RETURN(decode.splits, staging_.UploadOnce(absl::MakeConstSpan(cut.decode.splits)));
  QUIRE_ASSIGN_OR_RETURN(decode.num_splits, staging_.UploadOnce(absl::MakeConstSpan(&cut.num_splits, 1)));
  QUIRE_ASSIGN_OR_RETURN(decode.merge_begin, staging_.UploadOnce(absl::MakeConstSpan(cut.decode.merge_begin)));
  decode.max_splits = cut.num_splits;
  const int64_t partials = int64_t{cut.num_splits} * params.num_heads;
  QUIRE_RETURN_IF_ERROR(Reserve(partials * params.kv.head_dim * 4, &partial_out_));
  QUIRE_RETURN_IF_ERROR(Reserve(partials * 8, &partial_state_));
  decode.partial_out = partial_out_.as<float>();
  decode.partial_state = partial_state_.as<float2>();
  return EndOp(cuda::LaunchPagedDecode(decode, stream_), "PagedAttention");
}

// --- sampling

absl::Status CudaOps::SampleTokens(const SampleTokensParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckSampleTokens(params));
  QUIRE_RETURN_IF_ERROR(CheckContiguous("SampleTokens: logits", params.logits));
  const int64_t bytes = params.logits.rows * params.logits.cols * 4;
  if (host_logits_.bytes() < bytes) {
    host_logits_ = Buffer();
    QUIRE_ASSIGN_OR_RETURN(void* data, cuda::AllocatePinned(bytes));
    host_logits_ = Buffer(data, bytes, &cuda::FreePinned);
  }
  QUIRE_RETURN_IF_ERROR(cuda::CopyAsync(host_logits_.data(), params.logits.data, bytes, stream_));
  QUIRE_RETURN_IF_ERROR(Settle());
  SampleTokensParams on_host = params;
  on_host.logits = F32Matrix(host_logits_.as<float>(), params.logits.rows, params.logits.cols);
  return HostOps::SampleTokens(on_host);
}

}  // namespace quire
