#include <cmath>
#include <deque>

#include "kernels/base/half.h"
#include "kernels/base/philox.h"
#include "model/weight_source.h"

namespace quire {
namespace {

// Matrices are uniform with the variance that keeps activations near one in size, norms are one, biases zero.
class RandomWeightSource : public WeightSource {
 public:
  RandomWeightSource(const ModelConfig& config, uint64_t seed) : config_(config), seed_(seed) {}

  absl::StatusOr<WeightView> Matrix(Part part, int32_t layer) override {
    const PartShape shape = ShapeOf(config_, part);
    std::vector<uint16_t>& values = matrices_.emplace_back(shape.rows * shape.cols);
    const float limit = std::sqrt(3.0f / static_cast<float>(shape.cols));
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
    for (size_t i = 0; i < values.size(); i += 4) {
      const uint64_t index = i / 4;
      const std::array<uint32_t, 4> bits = Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                                       static_cast<uint32_t>(part), static_cast<uint32_t>(layer)},
                                                      key);
      for (size_t k = 0; k < 4 && i + k < values.size(); ++k) {
        const float unit = static_cast<float>(bits[k] >> 8) * 0x1p-23f - 1;
        values[i + k] = F32ToBf16(unit * limit);
      }
    }
    return WeightView{WeightFormat::kBf16, shape.rows, shape.cols, reinterpret_cast<const std::byte*>(values.data()),
                      RowBytes(WeightFormat::kBf16, shape.cols)};
  }

  absl::StatusOr<std::vector<float>> Vector(Part part, int32_t) override {
    return std::vector<float>(ShapeOf(config_, part).rows, 1.0f);
  }
  absl::StatusOr<std::vector<float>> Bias(Part part, int32_t) override {
    return std::vector<float>(ShapeOf(config_, part).rows, 0.0f);
  }

  void Release() override { matrices_.clear(); }

 private:
  const ModelConfig& config_;
  uint64_t seed_;
  std::deque<std::vector<uint16_t>> matrices_;
};

}  // namespace

std::unique_ptr<WeightSource> CreateRandomWeightSource(const ModelConfig& config, uint64_t seed) {
  return std::make_unique<RandomWeightSource>(config, seed);
}

}  // namespace quire
