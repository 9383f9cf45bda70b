#include <algorithm>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/huge_memory.h"

// PlanAttention and PagedAttention of CpuOps: loops over the items of one layer's attention.
namespace quire {
namespace {

// Replaces the buffer by a larger one; contents are not kept.
absl::Status ReserveFloats(int64_t count, Buffer* buffer) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (buffer->bytes() >= bytes) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(*buffer, AllocateHugeMemory(bytes));
  return absl::OkStatus();
}

// One loop. Buffers are looked up when it runs: a later layer of the program may have replaced them by larger ones.
struct AttentionJob {
  PagedAttentionParams params;
  const CpuAttentionPlan& plan;
  const AttentionSplit& split;
  const std::vector<AttentionItem>& items;  // of the split: items or merges
  void (*kernel)(const AttentionTask&);
  const std::vector<Buffer>& scratch;
  const Buffer& partials;
  int64_t items_per_thread;
  int num_threads;

  AttentionTask TaskOf(const AttentionItem& item, int thread) const;

  // Items are dealt out to the threads' shares in turn, so each has its part of the large ones, first.
  void Run(const ThreadPool::Piece& piece) const {
    for (int64_t i = piece.begin; i < piece.end; ++i) {
      const int64_t item = i % items_per_thread * num_threads + i / items_per_thread;
      if (item < static_cast<int64_t>(items.size())) kernel(TaskOf(items[item], piece.thread));
    }
  }
};

AttentionTask AttentionJob::TaskOf(const AttentionItem& item, int thread) const {
  // All rows of a shared prefix are behind its chunks.
  const SharedPrefix* const prefix = item.shared < 0 ? nullptr : &split.shared[item.shared];
  const CpuAttentionPlan::Tile tile = item.tile >= 0
                                          ? plan.tiles()[item.tile]
                                          : CpuAttentionPlan::Tile{.sequence = prefix->sequence,
                                                                   .num_rows = prefix->num_rows,
                                                                   .first_position = item.chunk_end * kKeyChunk};
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
  if (item.tile < 0) task.rows = split.shared_rows.data() + prefix->first;
  task.num_rows = tile.num_rows;
  task.num_heads = item.num_heads;
  task.head_dim = kv.head_dim;
  task.first_position = tile.first_position;
  const KvRunLayout layout = LayoutOf(kv);
  task.kv = KvRun(kv, layout, 0, kv_head);
  task.kv_dtype = kv.dtype;
  task.block_stride = kv.num_kv_heads * layout.bytes();
  task.row_stride = layout.row_bytes;
  task.values_at = layout.v_row(0);
  task.key_scales_at = layout.k_scale(0);
  task.value_scales_at = layout.v_scale(0);
  task.block_size = kv.block_size;
  task.block_table = plan.batch().block_tables.data() + tile.sequence * plan.batch().block_table_stride;
  task.chunk_begin = item.chunk_begin;
  task.chunk_end = item.chunk_end;
  task.scale = params.scale;
  task.softcap = params.logit_softcap;
  task.window = params.window;
  task.sinks = params.sinks == nullptr ? nullptr : params.sinks + item.first_head;
  task.slopes = params.alibi_slopes == nullptr ? nullptr : params.alibi_slopes + item.first_head;
  task.scratch = scratch[thread].as<float>();
  task.partials = item.partials < 0 ? nullptr : partials.as<float>() + item.partials;
  if (item.shared_partials >= 0) {
    task.shared_partials = partials.as<float>() + item.shared_partials;
    task.shared_chunks = prefix->num_chunks;
    task.shared_stride = int64_t{prefix->num_rows} * item.num_heads * PartialFloats(kv.head_dim);
  }
  return task;
}

}  // namespace

absl::Status CpuOps::PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) {
  Finish();
  OpTimer timer(&times_.attention);
  QUIRE_RETURN_IF_ERROR(CheckAttentionBatch(batch));
  static_cast<CpuAttentionPlan&>(plan).Build(batch, pool_.num_threads());
  return absl::OkStatus();
}

absl::Status CpuOps::ReserveAttentionMemory(int32_t head_dim, int64_t partial_floats) {
  for (Buffer& scratch : attention_scratch_) {
    QUIRE_RETURN_IF_ERROR(ReserveFloats(AttentionScratchFloats(head_dim), &scratch));
  }
  return ReserveFloats(partial_floats, &partials_);
}

void CpuOps::AddAttention(const PagedAttentionParams& params, const CpuAttentionPlan& plan,
                          const AttentionSplit& split) {
  const int num_threads = pool_.num_threads();
  const auto add = [&](const std::vector<AttentionItem>& items, void (*kernel)(const AttentionTask&)) {
    const int64_t per_thread = (static_cast<int64_t>(items.size()) + num_threads - 1) / num_threads;
    ThreadPool::Loop loop;
    loop.context = program_.New(
        AttentionJob{params, plan, split, items, kernel, attention_scratch_, partials_, per_thread, num_threads});
    loop.run = [](void* context, const ThreadPool::Piece& piece) {
      static_cast<const AttentionJob*>(context)->Run(piece);
    };
    loop.n = per_thread * num_threads;
    loop.max_grain = 1;
    loop.seconds = &times_.attention;
    program_.Add(loop);
  };
  add(split.items, kernels_.vector.attend);
  if (!split.merges.empty()) add(split.merges, kernels_.vector.merge_partials);
}

absl::Status CpuOps::PagedAttention(const PagedAttentionParams& params) {
  if (params.plan == nullptr) return absl::InvalidArgumentError("PagedAttention: no plan");
  const auto& plan = static_cast<const CpuAttentionPlan&>(*params.plan);
  QUIRE_RETURN_IF_ERROR(CheckPagedAttention(params, plan.batch()));
  QUIRE_RETURN_IF_ERROR(CheckKvType("PagedAttention", params.kv, kCpuKvTypes));
  const AttentionSplit& split = plan.SplitFor({params.num_heads, params.kv.num_kv_heads, params.kv.head_dim,
                                               params.window, params.kv.block_size, params.alibi_slopes != nullptr});
  QUIRE_RETURN_IF_ERROR(ReserveAttentionMemory(params.kv.head_dim, split.partial_floats));
  AddAttention(params, plan, split);
  return EndOp();
}

}  // namespace quire
