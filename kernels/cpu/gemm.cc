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
// What the calling thread fetches of its share of the next layer while it waits for the others.
constexpr int64_t kNextBytes = 8 << 10;
// What an idle thread fetches of the next layer: a part of the second-level cache that its share may fill.
constexpr int64_t kIdleFetchBytes = 128 << 10;
// Below this many inputs the calling thread quantises alone: waking the others costs more.
constexpr int64_t kMinSharedInputs = 1 << 14;

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

// One call of CpuLinear.
struct Layer {
  const GemmKernels& kernels;
  const CpuPackedWeight& weight;
  ConstF32Matrix x;  // columns padded to kFloatLanes if the weight has a float part
  const float* bias;
  F32Matrix out;
  RowRanges panels;
  const std::byte* panel_data;
  int64_t panel_bytes;

  OutputBlock Output(const CpuPackedWeight::Part& part, const RowRanges& ranges, int64_t range) const {
    return {out.row(ranges.begin(range)) + part.first_row, out.stride, ranges.size(range), part.rows,
            bias == nullptr ? nullptr : bias + part.first_row};
  }
};

// Tiles [begin, end) of one part for all rows.
void RunTiles(const Layer& layer, const CpuPackedWeight::Part& part, int64_t begin, int64_t end) {
  if (part.tiles.blocks > 0) {
    for (int64_t p = 0; p < layer.panels.count(); ++p) {
      layer.kernels.integer_gemm(part.tiles, begin, end, layer.panel_data + p * layer.panel_bytes,
                                 layer.Output(part, layer.panels, p));
    }
    return;
  }
  const RowRanges ranges(layer.x.rows, layer.kernels.max_float_rows);
  for (int64_t r = 0; r < ranges.count(); ++r) {
    layer.kernels.float_gemm(part.tiles, begin, end, layer.x.row(ranges.begin(r)), layer.x.stride,
                             layer.Output(part, ranges, r));
  }
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

// One piece of a thread's share of the tiles, and at its end what there is to fetch of the share of the next layer.
void RunPiece(const Layer& layer, const ThreadPool::Piece& piece, const std::byte* next_share, ThreadPool& pool) {
  ForParts(layer.weight, piece.begin, piece.end,
           [&](const CpuPackedWeight::Part& part, int64_t first, int64_t last) { RunTiles(layer, part, first, last); });
  if (piece.end < piece.share_end || next_share == nullptr) return;
  pool.FetchWhileIdle(piece.thread, next_share, kIdleFetchBytes);
  if (piece.thread != 0) return;  // else it is the calling thread, which will not be idle
  for (int64_t i = 0; i < kNextBytes; i += 64) __builtin_prefetch(next_share + i, 0, 2);
}

void Quantize(const Layer& layer, ThreadPool& pool, std::byte* panel_data) {
  const int64_t blocks = layer.weight.cols() / kBlock;
  const int64_t count = layer.panels.count();
  pool.ParallelFor(count, layer.x.rows * layer.x.cols < kMinSharedInputs ? count : 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      layer.kernels.quantize(layer.x.row(layer.panels.begin(p)), layer.x.stride, layer.panels.size(p), blocks,
                             panel_data + p * layer.panel_bytes);
    }
  });
}

// Least and most tiles that one thread takes at a time.
std::pair<int64_t, int64_t> PieceTiles(const CpuPackedWeight& weight, int64_t num_tiles, int64_t panels, int threads) {
  const int64_t cached = (panels == 1 ? kStreamedPieceBytes : kCachedWeightBytes) * num_tiles / weight.bytes();
  const int64_t least = std::max<int64_t>(1, std::min(cached, num_tiles / (kPiecesPerThread * threads)));
  return {least, panels == 1 ? num_tiles : least};
}

int64_t NumTiles(const CpuPackedWeight& weight) {
  int64_t tiles = 0;
  for (const CpuPackedWeight::Part& part : weight.parts()) tiles += part.num_tiles();
  return tiles;
}

// x with zeros up to a multiple of kFloatLanes columns.
ConstF32Matrix PadColumns(ConstF32Matrix x, float* to) {
  const int64_t cols = RoundUp(x.cols, kFloatLanes);
  for (int64_t r = 0; r < x.rows; ++r) {
    std::memcpy(to + r * cols, x.row(r), static_cast<size_t>(x.cols) * sizeof(float));
    std::fill(to + r * cols + x.cols, to + (r + 1) * cols, 0.0f);
  }
  return {to, x.rows, cols};
}

}  // namespace

absl::StatusOr<std::byte*> GemmScratch::Reserve(int64_t bytes) {
  if (bytes > data_.bytes()) {
    data_ = Buffer();  // before the new one is there: never both at once
    QUIRE_ASSIGN_OR_RETURN(data_, AllocateHugeMemory(bytes));
  }
  return data_.as<std::byte>();
}

void FillShareStarts(const CpuPackedWeight& weight, const ThreadPool& pool, std::vector<const std::byte*>* starts) {
  const int64_t num_tiles = NumTiles(weight);
  starts->clear();
  for (int thread = 0; thread < pool.num_threads(); ++thread) {
    starts->push_back(TileAddress(weight, pool.ShareBegin(num_tiles, thread)));
  }
}

absl::Status CpuLinear(const GemmKernels& kernels, ThreadPool& pool, const CpuPackedWeight& weight,
                       absl::Span<const std::byte* const> next_shares, ConstF32Matrix x, const float* bias,
                       F32Matrix out, GemmScratch& scratch) {
  QUIRE_CHECK(x.cols == weight.cols() && out.cols == weight.rows() && out.rows == x.rows);
  if (x.rows == 0) return absl::OkStatus();
  bool any_int = false, any_float = false;
  for (const CpuPackedWeight::Part& part : weight.parts()) (part.tiles.blocks > 0 ? any_int : any_float) = true;
  const int64_t num_tiles = NumTiles(weight);
  const RowRanges panels(x.rows, kernels.max_panel_rows);
  const int64_t record_bytes = kRecordRowBytes * panels.size(panels.count() - 1);
  const int64_t panel_bytes = any_int ? RoundUp(x.cols / kBlock * record_bytes, 64) + 64 : 0;
  const bool pad = any_float && x.cols % kFloatLanes != 0;
  const int64_t padded_bytes = pad ? x.rows * RoundUp(x.cols, kFloatLanes) * SizeOf(DType::kF32) : 0;
  QUIRE_ASSIGN_OR_RETURN(std::byte* const memory, scratch.Reserve(panels.count() * panel_bytes + padded_bytes));
  if (pad) x = PadColumns(x, reinterpret_cast<float*>(memory + panels.count() * panel_bytes));

  const Layer layer = {kernels, weight, x, bias, out, panels, memory, panel_bytes};
  if (any_int) Quantize(layer, pool, memory);
  const auto [least, most] = PieceTiles(weight, num_tiles, panels.count(), pool.num_threads());
  pool.ParallelForShares(num_tiles, least, most, [layer, next_shares, &pool](const ThreadPool::Piece& piece) {
    RunPiece(layer, piece, next_shares.empty() ? nullptr : next_shares[piece.thread], pool);
  });
  return absl::OkStatus();
}

}  // namespace quire
