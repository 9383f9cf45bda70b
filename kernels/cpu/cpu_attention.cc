#include <algorithm>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/huge_memory.h"

// PlanAttention and PagedAttention of CpuOps: splitting one layer's attention into items for the threads.
namespace quire {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Replaces the buffer by a larger one; contents are not kept.
absl::Status ReserveFloats(int64_t count, Buffer* buffer) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(*buffer, AllocateHugeMemory(bytes));
  return absl::OkStatus();
}

}  // namespace

absl::Status CpuOps::PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) {
  OpTimer timer(&times_.attention);
  QUIRE_RETURN_IF_ERROR(CheckAttentionBatch(batch));
  static_cast<CpuAttentionPlan&>(plan).Build(batch, pool_.num_threads());
  return absl::OkStatus();
}

int64_t CpuOps::MakeAttentionItems(const PagedAttentionParams& params, const CpuAttentionPlan& plan) {
  attend_items_.clear();
  merge_items_.clear();
  const int32_t group = params.num_heads / params.kv.num_kv_heads;
  int64_t partial_floats = 0;
  for (size_t t = 0; t < plan.tiles().size(); ++t) {
    const CpuAttentionPlan::Tile& tile = plan.tiles()[t];
    const int32_t first_key = params.window > 0 ? std::max(0, tile.first_position - params.window + 1) : 0;
    const int32_t chunk_begin = first_key / kKeyChunk;
    const int32_t chunk_end = static_cast<int32_t>(CeilDiv(tile.num_keys(), kKeyChunk));
    // Heads of a group that do not fit one task are dealt out evenly.
    const int64_t num_slices = CeilDiv(group, kMaxTaskQueries / tile.num_rows);
    const int32_t slice = static_cast<int32_t>(CeilDiv(group, num_slices));
    for (int32_t head = 0; head < params.num_heads; head += std::min(slice, group - head % group)) {
      AttentionItem item{.tile = static_cast<int32_t>(t),
                         .first_head = head,
                         .num_heads = std::min(slice, group - head % group),
                         .chunk_begin = chunk_begin,
                         .chunk_end = chunk_end};
      if (!tile.split_chunks || chunk_end - chunk_begin == 1) {
        attend_items_.push_back(item);
        continue;
      }
      item.partials = partial_floats;
      partial_floats += int64_t{chunk_end} * tile.num_rows * item.num_heads * PartialFloats(params.kv.head_dim);
      merge_items_.push_back(item);
      for (int32_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
        item.chunk_begin = chunk, item.chunk_end = chunk + 1;
        attend_items_.push_back(item);
      }
    }
  }
  return partial_floats;
}

absl::Status CpuOps::ReserveAttentionMemory(int32_t head_dim, int64_t partial_floats) {
  for (Buffer& scratch : attention_scratch_) {
    QUIRE_RETURN_IF_ERROR(ReserveFloats(AttentionScratchFloats(head_dim), &scratch));
  }
  return ReserveFloats(partial_floats, &partials_);
}

AttentionTask CpuOps::MakeTask(const PagedAttentionParams& params, const CpuAttentionPlan& plan,
                               const AttentionItem& item, int thread) const {
  const CpuAttentionPlan::Tile& tile = plan.tiles()[item.tile];
  const PagedKvView& kv = params.kv;
  const int32_t kv_head = item.first_head / (params.num_heads / kv.num_kv_heads);
  const int64_t column = int64_t{item.first_head} * kv.head_dim;
  AttentionTask task;
  task.q = params.q.f32().row(tile.first_row) + column;
  task.q_stride = params.q.stride;
  task.out = params.out.f32().row(tile.first_row) + column;
  task.out_stride = params.out.stride;
  if (params.logsumexp.data != nullptr) {
    task.logsumexp = params.logsumexp.f32().row(tile.first_row) + item.first_head;
    task.logsumexp_stride = params.logsumexp.stride;
  }
  task.num_rows = tile.num_rows;
  task.num_heads = item.num_heads;
  task.head_dim = kv.head_dim;
  task.first_position = tile.first_position;
  task.kv_is_f16 = kv.dtype == DType::kF16;
  task.kv = task.kv_is_f16 ? static_cast<const void*>(KvRun<uint16_t>(kv, 0, kv_head)) : KvRun<float>(kv, 0, kv_head);
  task.block_stride = int64_t{2} * kv.block_size * kv.head_dim * kv.num_kv_heads;
  task.block_size = kv.block_size;
  task.block_table = plan.batch().block_tables.data() + tile.sequence * plan.batch().block_table_stride;
  task.chunk_begin = item.chunk_begin;
  task.chunk_end = item.chunk_end;
  task.scale = params.scale;
  task.softcap = params.logit_softcap;
  task.window = params.window;
  task.sinks = params.sinks == nullptr ? nullptr : params.sinks + item.first_head;
  task.slopes = params.alibi_slopes == nullptr ? nullptr : params.alibi_slopes + item.first_head;
  task.scratch = attention_scratch_[thread].as<float>();
  task.partials = item.partials < 0 ? nullptr : partials_.as<float>() + item.partials;
  return task;
}

absl::Status CpuOps::PagedAttention(const PagedAttentionParams& params) {
  OpTimer timer(&times_.attention);
  if (params.plan == nullptr) return absl::InvalidArgumentError("PagedAttention: no plan");
  const auto& plan = static_cast<const CpuAttentionPlan&>(*params.plan);
  QUIRE_RETURN_IF_ERROR(CheckPagedAttention(params, plan.batch()));
  const int64_t partial_floats = MakeAttentionItems(params, plan);
  QUIRE_RETURN_IF_ERROR(ReserveAttentionMemory(params.kv.head_dim, partial_floats));
  const auto run_items = [&](const std::vector<AttentionItem>& items, void (*kernel)(const AttentionTask&)) {
    pool_.ParallelFor(static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) kernel(MakeTask(params, plan, items[i], thread));
    });
  };
  run_items(attend_items_, vector_.attend);
  run_items(merge_items_, vector_.merge_partials);
  return absl::OkStatus();
}

}  // namespace quire
