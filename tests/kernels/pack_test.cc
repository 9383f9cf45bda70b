#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/packed_weight.h"
#include "tests/kernels/random_weight.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::MakeRandomWeight;
using testing::RandomWeight;

std::vector<float> LookupAll(const CpuPackedWeight& packed) {
  std::vector<int32_t> ids(packed.rows());
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> out(packed.rows() * packed.cols());
  LookupRows(packed, ids, {out.data(), packed.rows(), packed.cols()});
  return out;
}

TEST(PackTest, LosesNothing) {
  std::mt19937 random(2);
  WeightArena arena;
  for (WeightFormat format : kAllWeightFormats) {
    for (int64_t rows : {1, 15, 16, 17, 70}) {
      for (int64_t blocks : {1, 2, 3}) {
        const RandomWeight w = MakeRandomWeight(format, rows, blocks * Info(format).block_length, random);
        auto packed = PackCpuWeight({w.View()}, arena);
        ASSERT_TRUE(packed.ok()) << packed.status();
        EXPECT_EQ((*packed)->rows(), rows);
        EXPECT_EQ((*packed)->cols(), w.cols);
        EXPECT_EQ(LookupAll(**packed), w.values) << Info(format).name << " " << rows << " x " << w.cols;
      }
    }
  }
}

TEST(PackTest, PutsPartsOfAnyFormatBelowEachOther) {
  std::mt19937 random(3);
  std::vector<RandomWeight> weights;
  std::vector<WeightView> views;
  std::vector<float> expected;
  for (WeightFormat format : kAllWeightFormats) {
    weights.push_back(MakeRandomWeight(format, 1 + static_cast<int64_t>(random() % 40), 256, random));
    expected.insert(expected.end(), weights.back().values.begin(), weights.back().values.end());
  }
  for (const RandomWeight& w : weights) views.push_back(w.View());
  WeightArena arena;
  auto packed = PackCpuWeight(views, arena);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(LookupAll(**packed), expected);
}

TEST(PackTest, FollowsTheRowOrderAndTheRowStride) {
  std::mt19937 random(4);
  const RandomWeight w = MakeRandomWeight(WeightFormat::kQ4_1, 40, 64, random);
  std::vector<int32_t> order = {3, 0, 39, 1};
  // Only every second stored row exists for the view.
  WeightView view = w.View();
  view.rows = 20;
  view.row_bytes *= 2;
  order.resize(20);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  view.row_order = order;
  WeightArena arena;
  auto packed = PackCpuWeight({view}, arena);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const std::vector<float> got = LookupAll(**packed);
  for (int64_t r = 0; r < 20; ++r) {
    for (int64_t k = 0; k < 64; ++k) ASSERT_EQ(got[r * 64 + k], w.values[2 * order[r] * 64 + k]) << r << " " << k;
  }
}

TEST(PackTest, RefusesWhatItCannotHold) {
  std::mt19937 random(5);
  const RandomWeight w = MakeRandomWeight(WeightFormat::kQ8_0, 4, 64, random);
  const RandomWeight other = MakeRandomWeight(WeightFormat::kQ8_0, 4, 32, random);
  const std::vector<int32_t> too_short = {0, 1, 2}, out_of_range = {0, 1, 2, 4}, negative = {0, 1, 2, -1};
  WeightArena arena;
  const auto with = [&](auto change) {
    WeightView view = w.View();
    change(view);
    return PackCpuWeight({view}, arena).status();
  };
  const auto expect = [](const absl::Status& status, const char* text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect(PackCpuWeight({}, arena).status(), "0 parts");
  expect(PackCpuWeight({w.View(), other.View()}, arena).status(), "part 1: 32 cols, 64 expected");
  expect(with([](WeightView& v) { v.cols = 48; }), "multiple of 32");
  expect(with([](WeightView& v) { v.cols = 0; }), "0 cols");
  expect(with([](WeightView& v) { v.rows = 0; }), "0 rows");
  expect(with([](WeightView& v) { v.rows = int64_t{1} << 40; }), "rows, 1 to");
  expect(with([](WeightView& v) { v.cols = int64_t{1} << 40; }), "cols, a multiple");
  expect(with([](WeightView& v) { v.row_bytes = 67; }), "at least 68 expected");
  expect(with([](WeightView& v) { v.data = nullptr; }), "bytes a row");
  expect(with([](WeightView& v) { v.format = WeightFormat::kQ4_K; }), "multiple of 256 (block of Q4_K)");
  expect(with([&](WeightView& v) { v.row_order = too_short; }), "row order of 3, 4 rows");
  expect(with([&](WeightView& v) { v.row_order = out_of_range; }), "names row 4");
  expect(with([&](WeightView& v) { v.row_order = negative; }), "names row -1");
}

TEST(WeightArenaTest, GivesZeroedAlignedMemoryThatDoesNotOverlap) {
  WeightArena arena;
  std::mt19937 random(6);
  std::vector<std::pair<std::byte*, int64_t>> pieces;
  for (int i = 0; i < 200; ++i) {
    // Small ones share regions, some are larger than a region.
    const int64_t bytes = i % 50 == 49 ? (int64_t{70} << 20) : 1 + static_cast<int64_t>(random() % (1 << 20));
    auto memory = arena.Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0u);
    ASSERT_EQ((*memory)[0], std::byte{0});
    ASSERT_EQ((*memory)[bytes - 1], std::byte{0});
    (*memory)[0] = (*memory)[bytes - 1] = std::byte{1};
    pieces.emplace_back(*memory, bytes);
  }
  std::sort(pieces.begin(), pieces.end());
  for (size_t i = 1; i < pieces.size(); ++i) EXPECT_LE(pieces[i - 1].first + pieces[i - 1].second, pieces[i].first);
}

}  // namespace
}  // namespace quire
