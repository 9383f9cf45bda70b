#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/attention_driver.h"
#include "tests/kernels/random_weight.h"

// Ops that a backend carries out as one, and ops that it puts off within a step, against the plain ones one by one.
namespace quire {
namespace {

using testing::MakeBackend;
using testing::MakeRandomWeight;
using testing::RandomWeight;

// A decoder layer's worth of weights, inputs and working memory.
struct Layer {
  int64_t rows = 1, hidden = 64, inner = 96;
  int32_t heads = 4, kv_heads = 2, head_dim = 16, block_size = 8;
  WeightFormat format = WeightFormat::kQ4_1;
  bool one_part = false;  // q, k and v (and gate and up) stored as one matrix
};

class LayerRun {
 public:
  LayerRun(Backend& backend, const Layer& shape) : ops_(backend.ops()), shape_(shape) {
    std::mt19937 random(7);
    const int64_t query = int64_t{shape.heads} * shape.head_dim, key = int64_t{shape.kv_heads} * shape.head_dim;
    qkv_weight_ = Pack(shape.one_part ? std::vector<int64_t>{query + 2 * key} : std::vector<int64_t>{query, key, key},
                       shape.hidden, random);
    gate_up_weight_ =
        Pack(shape.one_part ? std::vector<int64_t>{2 * shape.inner} : std::vector<int64_t>{shape.inner, shape.inner},
             shape.hidden, random);
    down_weight_ = Pack({shape.hidden}, shape.inner, random);
    residual_ = Random(shape.rows * shape.hidden, random);
    norm_ = Random(shape.hidden, random);
    bias_ = Random(query + 2 * key, random);
    normed_.resize(residual_.size());
    qkv_.resize(shape.rows * (query + 2 * key));
    gate_up_.resize(shape.rows * 2 * shape.inner);
    mlp_.resize(shape.rows * shape.inner);
    cos_sin_ = Random(shape.rows * shape.head_dim, random);
    for (int64_t r = 0; r < shape.rows; ++r) slots_.push_back(static_cast<int32_t>(shape.rows - 1 - r));
    num_blocks_ = (shape.rows + shape.block_size - 1) / shape.block_size;
    kv_.resize(num_blocks_ * shape.block_size * 2 * key);
  }

  // Every value that ops leave and that has a meaning.
  std::vector<float> Plain() {
    EXPECT_TRUE(ops_.AddRmsNorm(Norm()).ok());
    EXPECT_TRUE(ops_.Linear(Qkv()).ok());
    EXPECT_TRUE(ops_.RopeAndStoreKv(Rope()).ok());
    EXPECT_TRUE(ops_.AddRmsNorm(Norm()).ok());
    EXPECT_TRUE(ops_.Linear(GateUp()).ok());
    EXPECT_TRUE(ops_.SiluMul(Silu()).ok());
    const std::vector<float> before = residual_;
    EXPECT_TRUE(ops_.Linear(Down()).ok());
    for (size_t i = 0; i < before.size(); ++i) residual_[i] = before[i] + residual_[i];
    return Values();
  }

  std::vector<float> Fused(bool in_step) {
    if (in_step) ops_.BeginStep();
    EXPECT_TRUE(ops_.NormLinearRope(Norm(), Qkv(), Rope()).ok());
    EXPECT_TRUE(ops_.NormLinearSilu(Norm(), GateUp(), Silu()).ok());
    EXPECT_TRUE(ops_.LinearAdd(Down()).ok());
    if (in_step) ops_.EndStep();
    return Values();
  }

  // An op of host values in the middle of a step sees what was put off before it.
  std::vector<float> GatheredInStep() {
    std::vector<float> out(shape_.hidden);
    const std::vector<int32_t> last = {static_cast<int32_t>(shape_.rows - 1)};
    ops_.BeginStep();
    EXPECT_TRUE(ops_.LinearAdd(Down()).ok());
    EXPECT_TRUE(ops_.GatherRows({last, View(residual_), F32Matrix(out.data(), 1, shape_.hidden)}).ok());
    ops_.EndStep();
    EXPECT_TRUE(std::equal(out.begin(), out.end(), residual_.end() - shape_.hidden));
    return out;
  }

  void ExpectBadViewsAreRefused() {
    LinearParams elsewhere = Qkv();
    elsewhere.x = View(residual_);
    EXPECT_EQ(ops_.NormLinear(Norm(), elsewhere).code(), absl::StatusCode::kInvalidArgument);
    AddRmsNormParams with_delta = Norm();
    with_delta.delta = View(residual_);
    EXPECT_EQ(ops_.NormLinear(with_delta, Qkv()).code(), absl::StatusCode::kInvalidArgument);
    RopeAndStoreKvParams rope = Rope();
    std::vector<float> other(qkv_.size());
    rope.qkv = View(other);
    EXPECT_EQ(ops_.NormLinearRope(Norm(), Qkv(), rope).code(), absl::StatusCode::kInvalidArgument);
    rope = Rope();
    slots_[0] = static_cast<int32_t>(num_blocks_ * shape_.block_size);
    EXPECT_EQ(ops_.NormLinearRope(Norm(), Qkv(), rope).code(), absl::StatusCode::kInvalidArgument);
    SiluMulParams silu = Silu();
    std::vector<float> gate_up(gate_up_.size());
    silu.gate_up = View(gate_up);
    EXPECT_EQ(ops_.NormLinearSilu(Norm(), GateUp(), silu).code(), absl::StatusCode::kInvalidArgument);
  }

 private:
  static std::vector<float> Random(int64_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

  std::unique_ptr<PackedWeight> Pack(const std::vector<int64_t>& parts, int64_t cols, std::mt19937& random) {
    std::vector<RandomWeight> weights;
    std::vector<WeightView> views;
    for (int64_t rows : parts) weights.push_back(MakeRandomWeight(shape_.format, rows, cols, random));
    for (const RandomWeight& weight : weights) views.push_back(weight.View());
    auto packed = ops_.PackWeight(views);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  TensorView View(std::vector<float>& values) const {
    return F32Matrix(values.data(), shape_.rows, static_cast<int64_t>(values.size()) / shape_.rows);
  }
  AddRmsNormParams Norm() { return {View(residual_), {}, norm_.data(), 1e-5f, View(normed_)}; }
  LinearParams Qkv() { return {View(normed_), qkv_weight_.get(), bias_.data(), View(qkv_)}; }
  LinearParams GateUp() { return {View(normed_), gate_up_weight_.get(), nullptr, View(gate_up_)}; }
  LinearParams Down() { return {View(mlp_), down_weight_.get(), nullptr, View(residual_)}; }
  SiluMulParams Silu() { return {View(gate_up_), View(mlp_)}; }
  RopeAndStoreKvParams Rope() {
    const PagedKvView kv = {kv_.data(), DType::kF32, num_blocks_, shape_.block_size, shape_.kv_heads, shape_.head_dim};
    return {View(qkv_), shape_.heads, View(cos_sin_), slots_, kv};
  }
  std::vector<float> Values() const {
    std::vector<float> all = residual_;
    for (const auto* values : {&qkv_, &kv_, &mlp_}) all.insert(all.end(), values->begin(), values->end());
    return all;
  }

  Ops& ops_;
  const Layer shape_;
  int64_t num_blocks_ = 0;
  std::unique_ptr<PackedWeight> qkv_weight_, gate_up_weight_, down_weight_;
  std::vector<float> residual_, norm_, bias_, normed_, qkv_, gate_up_, mlp_, cos_sin_, kv_;
  std::vector<int32_t> slots_;
};

std::vector<Layer> Layers() {
  return {{},
          {.rows = 5},
          {.rows = 130},
          {.rows = 2, .one_part = true},
          {.rows = 15, .hidden = 576, .inner = 64, .heads = 9, .kv_heads = 3, .head_dim = 64},
          {.rows = 3, .hidden = 160, .inner = 192, .heads = 6, .kv_heads = 1, .head_dim = 24},  // no whole tiles
          {.rows = 3, .hidden = 48, .inner = 80, .format = WeightFormat::kF16},
          {.rows = 7, .hidden = 50, .inner = 70, .format = WeightFormat::kF32}};
}

void ExpectSameBytes(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

TEST(FusedOpsTest, AreTheSameAsOneByOne) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeBackend(DeviceKind::kReference));
  for (CpuIsa isa : AvailableCpuIsas()) backends.push_back(MakeBackend(DeviceKind::kCpu, isa, 2));
  for (int threads : {1, 5}) backends.push_back(MakeBackend(DeviceKind::kCpu, CpuIsa::kAuto, threads));
  for (const auto& backend : backends) {
    for (const Layer& layer : Layers()) {
      if (layer.hidden % 32 != 0 && layer.format == WeightFormat::kQ4_1) continue;
      SCOPED_TRACE(::testing::Message() << backend->Describe() << " rows " << layer.rows << " hidden " << layer.hidden);
      const std::vector<float> expected = LayerRun(*backend, layer).Plain();
      ExpectSameBytes(LayerRun(*backend, layer).Fused(/*in_step=*/false), expected);
      ExpectSameBytes(LayerRun(*backend, layer).Fused(/*in_step=*/true), expected);
      LayerRun(*backend, layer).GatheredInStep();
    }
  }
}

TEST(FusedOpsTest, ViewsThatDoNotMeetAreRefused) {
  auto backend = MakeBackend(DeviceKind::kCpu);
  LayerRun(*backend, {}).ExpectBadViewsAreRefused();
}

}  // namespace
}  // namespace quire
