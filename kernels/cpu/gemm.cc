#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/huge_memory.h"

namespace quire {
namespace {

// Weights that stay in the second-level cache while the panels of rows pass over them.
constexpr int64_t kCachedWeightBytes = 256 << 10;
constexpr int64_t kPiecesPerThread = 8;
// The last pieces of one panel, which reads weights faster than memory gives them: small, so that threads end together.
constexpr int64_t kStreamedPieceBytes = 16 << 10;
// What a waiting thread fetches of its share of the layer: a part of the second-level cache that it may fill.
constexpr int64_t kFirstBytes = 128 << 10;
// Up to this many inputs each thread normalises and quantises all of them itself: waiting for the others takes longer.
constexpr int64_t kMaxOwnInputs = 1 << 13;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Splits `rows` into ranges of at most `most` rows that differ by at most one.
class RowRanges {
 public:
  RowRanges(int64_t rows, int64_t most) : rows_(rows), count_((rows + most - 1) / most) {}
  int64_t count() const { return count_; }
  int64_t begin(int64_t range) const { return range * rows_ / count_; }
  int32_t size(int64_t range) const { return static_cast<int32_t>(begin(range + 1) - begin(range)); }

 private:
  int64_t rows_;
  int64_t count_;
};

// A layer in a program. Its inputs are prepared as panels of int8 (for integer parts), as rows of f32 with columns
// padded to kFloatLanes (for float parts if they need be padded or normalised), or both.
struct Job {
  const GemmKernels& gemm;
  const VectorKernels& vector;
  const GemmScratch& scratch;
  LinearLayer layer;
  RowRanges panels;
  bool any_int;
  bool any_float;
  bool own_inputs;      // each thread prepares all of them for itself
  int64_t panel_bytes;  // 0: no integer parts
  int64_t padded_cols;

  bool copies_rows() const { return layer.norm_weight != nullptr || (any_float && padded_cols != layer.x.cols); }
  bool keeps_rows() const { return copies_rows() && (own_inputs || any_float); }
  int64_t panels_size() const { return panels.count() * panel_bytes; }
  int64_t rows_size(int64_t rows) const { return rows * padded_cols * SizeOf(DType::kF32); }

  std::byte* panel_data(int thread) const { return own_inputs ? scratch.own(thread) : scratch.shared(); }
  // Of row 0 if rows are kept, else room for those of one panel.
  float* row_data(int thread) const {
    std::byte* const data = keeps_rows() ? panel_data(thread) + panels_size() : scratch.own(thread);
    return reinterpret_cast<float*>(data);
  }
  // Of `count` rows from `row` on.
  OutputBlock Output(const CpuPackedWeight::Part& part, int64_t row, int32_t count) const {
    return {.data = layer.out.row(row) + part.first_row,
            .stride = layer.out.stride,
            .rows = count,
            .outputs = part.rows,
            .bias = layer.bias == nullptr ? nullptr : layer.bias + part.first_row,
            .add = layer.add};
  }
};

int64_t NumTiles(const CpuPackedWeight& weight) {
  int64_t tiles = 0;
  for (const CpuPackedWeight::Part& part : weight.parts()) tiles += part.num_tiles();
  return tiles;
}

int64_t NumItems(const LinearLayer& layer) {
  const int64_t tiles = layer.tail.paired ? layer.weight->parts()[0].num_tiles() : NumTiles(*layer.weight);
  return (tiles + layer.tail.item_tiles - 1) / layer.tail.item_tiles;
}

// Where tile `tile` of the parts taken one after the other begins; where the last one ends for the tile behind it.
const std::byte* TileAddress(const CpuPackedWeight& weight, int64_t tile) {
  const std::byte* address = nullptr;
  for (const CpuPackedWeight::Part& part : weight.parts()) {
    address = part.tiles.data + std::min(tile, part.num_tiles()) * part.tiles.tile_bytes;
    if (tile < part.num_tiles()) break;
    tile -= part.num_tiles();
  }
  return address;
}

ThreadPool::Bytes FirstBytes(const void* context, int thread, int num_threads) {
  const LinearLayer& layer = static_cast<const Job*>(context)->layer;
  const int64_t item = ThreadPool::ShareBegin(NumItems(layer), thread, num_threads);
  return {TileAddress(*layer.weight, item * layer.tail.item_tiles), kFirstBytes};
}

// Rows `from` .. of x with zeros up to padded_cols, normalised if they are to be.
void CopyRows(const Job& job, int64_t from, int64_t count, float* to) {
  const LinearLayer& layer = job.layer;
  const int64_t cols = layer.x.cols;
  for (int64_t r = from; r < from + count; ++r, to += job.padded_cols) {
    if (layer.norm_weight != nullptr) {
      job.vector.add_rms_norm(layer.x.row(r), nullptr, layer.norm_weight, layer.epsilon, to, cols);
    } else {
      std::memcpy(to, layer.x.row(r), static_cast<size_t>(cols) * sizeof(float));
    }
    std::fill(to + cols, to + job.padded_cols, 0.0f);
  }
}

void PreparePanels(const Job& job, int64_t begin, int64_t end, int thread) {
  for (int64_t p = begin; p < end; ++p) {
    const int64_t first = job.panels.begin(p);
    ConstF32Matrix rows = job.layer.x.slice_rows(first, job.panels.size(p));
    if (job.copies_rows()) {
      float* const copy = job.row_data(thread) + (job.keeps_rows() ? first * job.padded_cols : 0);
      CopyRows(job, first, rows.rows, copy);
      rows = {copy, rows.rows, job.padded_cols};
    }
    if (!job.any_int) continue;
    job.gemm.quantize(rows.data, rows.stride, job.panels.size(p), job.layer.x.cols / kBlock,
                      job.panel_data(thread) + p * job.panel_bytes);
  }
}

// Tiles [begin, end) of one part for the rows of panel `p`.
void RunTiles(const Job& job, const CpuPackedWeight::Part& part, int64_t begin, int64_t end, int64_t p, int thread) {
  const int64_t first = job.panels.begin(p);
  if (part.tiles.blocks > 0) {
    job.gemm.integer_gemm(part.tiles, begin, end, job.panel_data(thread) + p * job.panel_bytes,
                          job.Output(part, first, job.panels.size(p)));
    return;
  }
  ConstF32Matrix x = job.layer.x;
  if (job.copies_rows()) x = {job.row_data(thread), x.rows, job.padded_cols};
  const RowRanges ranges(job.panels.size(p), job.gemm.max_float_rows);
  for (int64_t r = 0; r < ranges.count(); ++r) {
    const int64_t row = first + ranges.begin(r);
    job.gemm.float_gemm(part.tiles, begin, end, x.row(row), x.stride, job.Output(part, row, ranges.size(r)));
  }
}

// Calls body(part, first, last) for the parts that tiles [begin, end) of all parts, one after the other, lie in.
template <typename F>
void ForParts(const CpuPackedWeight& weight, int64_t begin, int64_t end, F body) {
  for (const CpuPackedWeight::Part& part : weight.parts()) {
    const int64_t count = part.num_tiles();
    if (begin < count && end > 0) body(part, std::max<int64_t>(begin, 0), std::min(end, count));
    begin -= count;
    end -= count;
  }
}

void RunItems(void* context, const ThreadPool::Piece& piece) {
  const Job& job = *static_cast<const Job*>(context);
  if (job.own_inputs && piece.is_first) PreparePanels(job, 0, job.panels.count(), piece.thread);
  const LinearTail& tail = job.layer.tail;
  const CpuPackedWeight& weight = *job.layer.weight;
  const int64_t begin = piece.begin * tail.item_tiles, end = piece.end * tail.item_tiles;
  for (int64_t p = 0; p < job.panels.count(); ++p) {
    const auto run = [&](const CpuPackedWeight::Part& part, int64_t first, int64_t last) {
      RunTiles(job, part, first, last, p, piece.thread);
    };
    if (tail.paired) {
      for (const CpuPackedWeight::Part& part : weight.parts()) run(part, begin, std::min(end, part.num_tiles()));
    } else {
      ForParts(weight, begin, end, run);
    }
    if (tail.run == nullptr) continue;
    const int64_t row = job.panels.begin(p);
    tail.run(tail.context, {row, row + job.panels.size(p), piece.begin, piece.end});
  }
}

// Sets the least and most items that one thread takes at a time.
void SetGrains(const Job& job, int num_threads, ThreadPool::Loop* loop) {
  const bool streamed = job.panels.count() == 1;
  const int64_t item_bytes = std::max<int64_t>(1, job.layer.weight->bytes() / std::max<int64_t>(1, loop->n));
  const int64_t cached = (streamed ? kStreamedPieceBytes : kCachedWeightBytes) / item_bytes;
  loop->min_grain = std::max<int64_t>(1, std::min(cached, loop->n / (kPiecesPerThread * num_threads)));
  if (!streamed) loop->max_grain = loop->min_grain;
}

}  // namespace

absl::Status GemmScratch::Reserve(int num_threads, int64_t own_bytes, int64_t shared_bytes) {
  own_bytes = std::max(own_bytes_, RoundUp(own_bytes, 64));
  shared_bytes = std::max(shared_bytes_, RoundUp(shared_bytes, 64));
  const int64_t bytes = shared_bytes + num_threads * own_bytes;
  if (bytes > data_.bytes()) {
    data_ = Buffer();  // before the new one is there: never both at once
    own_bytes_ = shared_bytes_ = 0;
    QUIRE_ASSIGN_OR_RETURN(data_, AllocateHugeMemory(bytes));
  }
  own_bytes_ = own_bytes;
  shared_bytes_ = shared_bytes;
  return absl::OkStatus();
}

absl::Status AddLinear(const CpuKernels& kernels, int num_threads, const LinearLayer& layer, GemmScratch& scratch,
                       Program& program) {
  const CpuPackedWeight& weight = *layer.weight;
  QUIRE_CHECK(layer.x.cols == weight.cols() && layer.out.cols == weight.rows() && layer.out.rows == layer.x.rows);
  if (layer.x.rows == 0) return absl::OkStatus();
  bool any_int = false, any_float = false;
  for (const CpuPackedWeight::Part& part : weight.parts()) (part.tiles.blocks > 0 ? any_int : any_float) = true;
  const RowRanges panels(layer.x.rows, kernels.gemm.max_panel_rows);
  const int64_t record_bytes = kRecordRowBytes * panels.size(panels.count() - 1);
  const int64_t panel_bytes = any_int ? RoundUp(layer.x.cols / kBlock * record_bytes, 64) + 64 : 0;
  const int64_t padded_cols = RoundUp(layer.x.cols, kFloatLanes);
  const bool own_inputs = layer.x.rows * padded_cols <= kMaxOwnInputs;
  Job* const job = program.New(Job{kernels.gemm, kernels.vector, scratch, layer, panels, any_int, any_float, own_inputs,
                                   panel_bytes, padded_cols});
  const int64_t kept = job->panels_size() + (job->keeps_rows() ? job->rows_size(layer.x.rows) : 0);
  const int64_t passing =
      job->copies_rows() && !job->keeps_rows() ? job->rows_size(panels.size(panels.count() - 1)) : 0;
  QUIRE_RETURN_IF_ERROR(scratch.Reserve(num_threads, own_inputs ? kept : passing, own_inputs ? 0 : kept));

  ThreadPool::Loop loop;
  loop.context = job;
  loop.first_bytes = FirstBytes;
  loop.seconds = layer.seconds;
  if (!own_inputs && (any_int || job->copies_rows())) {
    loop.run = [](void* context, const ThreadPool::Piece& piece) {
      PreparePanels(*static_cast<const Job*>(context), piece.begin, piece.end, piece.thread);
    };
    loop.n = panels.count();
    loop.max_grain = 1;
    program.Add(loop);
  }
  loop.run = RunItems;
  loop.n = NumItems(layer);
  SetGrains(*job, num_threads, &loop);
  program.Add(loop);
  return absl::OkStatus();
}

}  // namespace quire
