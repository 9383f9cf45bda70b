#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/half.h"
#include "tests/kernels/attention_driver.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using testing::MakeBackend;

std::vector<float> RandomValues(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::unique_ptr<Backend>> CpuBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (CpuIsa isa : AvailableCpuIsas()) backends.push_back(MakeBackend(DeviceKind::kCpu, isa, 2));
  for (CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const auto available = AvailableCpuIsas();
    if (std::find(available.begin(), available.end(), isa) == available.end()) {
      std::printf("skipped: no %s on this machine\n", std::string(Name(isa)).c_str());
    }
  }
  return backends;
}

uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(Bits(a[i]), Bits(b[i])) << i << ": " << a[i] << ", " << b[i];
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], relative * (std::abs(b[i]) + 1e-3)) << i;
}

std::vector<float> FromHex(const std::string& hex) {
  std::vector<float> values(hex.size() / 8);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    for (int byte = 3; byte >= 0; --byte) {
      bits = bits << 8 | static_cast<uint32_t>(std::stoul(hex.substr(i * 8 + byte * 2, 2), nullptr, 16));
    }
    values[i] = std::bit_cast<float>(bits);
  }
  return values;
}

std::vector<uint16_t> HalvesFromHex(const std::string& hex) {
  std::vector<uint16_t> values(hex.size() / 4);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint16_t>(std::stoul(hex.substr(i * 4, 2), nullptr, 16) |
                                      std::stoul(hex.substr(i * 4 + 2, 2), nullptr, 16) << 8);
  }
  return values;
}

std::vector<float> AddRmsNorm(Backend& backend, int64_t rows, int64_t cols, bool with_delta) {
  std::vector<float> residual = RandomValues(rows * cols, 1, 3), out(rows * cols);
  std::vector<float> delta = RandomValues(rows * cols, 2);
  const std::vector<float> weight = RandomValues(cols, 3);
  AddRmsNormParams params;
  params.residual = F32Matrix(residual.data(), rows, cols);
  if (with_delta) params.delta = F32Matrix(delta.data(), rows, cols);
  params.weight = weight.data();
  params.epsilon = 1e-5f;
  params.out = F32Matrix(out.data(), rows, cols);
  EXPECT_TRUE(backend.ops().AddRmsNorm(params).ok());
  out.insert(out.end(), residual.begin(), residual.end());
  return out;
}

TEST(ElementwiseTest, AddRmsNorm) {
  auto reference = MakeBackend(DeviceKind::kReference);
  const auto backends = CpuBackends();
  for (int64_t cols : {1, 7, 16, 33, 576, 2048}) {
    for (bool with_delta : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "cols " << cols << " delta " << with_delta);
      const std::vector<float> expected = AddRmsNorm(*backends[0], 37, cols, with_delta);
      ExpectNear(expected, AddRmsNorm(*reference, 37, cols, with_delta), 2e-6);
      for (const auto& backend : backends) ExpectSameBits(expected, AddRmsNorm(*backend, 37, cols, with_delta));
    }
  }
}

std::vector<float> SiluMul(Backend& backend, std::vector<float> gate_up, int64_t cols) {
  const int64_t rows = static_cast<int64_t>(gate_up.size()) / (2 * cols);
  std::vector<float> out(rows * cols);
  EXPECT_TRUE(
      backend.ops()
          .SiluMul({.gate_up = F32Matrix(gate_up.data(), rows, 2 * cols), .out = F32Matrix(out.data(), rows, cols)})
          .ok());
  return out;
}

TEST(ElementwiseTest, SiluMul) {
  auto reference = MakeBackend(DeviceKind::kReference);
  const auto backends = CpuBackends();
  for (int64_t cols : {1, 15, 16, 100, 1536}) {
    const std::vector<float> gate_up = RandomValues(19 * 2 * cols, 5, 12);
    const std::vector<float> expected = SiluMul(*backends[0], gate_up, cols);
    ExpectNear(expected, SiluMul(*reference, gate_up, cols), 1e-6);
    for (const auto& backend : backends) ExpectSameBits(expected, SiluMul(*backend, gate_up, cols));
  }
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> edges = {-200, 200, 88.5f, -88.5f, 0, nan, inf, 1e-30f, 1, 1, 1, 1, 1, 1, 1, 1};
  for (const auto& backend : backends) {
    const std::vector<float> out = SiluMul(*backend, edges, 8);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 200);
    EXPECT_EQ(out[2], 88.5f);
    EXPECT_NEAR(out[3], 0, 1e-30);
    EXPECT_EQ(out[4], 0);
    EXPECT_TRUE(std::isnan(out[5]));
    EXPECT_EQ(out[6], inf);
    EXPECT_EQ(out[7], 0.5e-30f);
  }
}

TEST(ElementwiseTest, RopeTableMatchesReference) {
  const auto path = testing::RefPath("numeric/rope.json");
  if (!path) GTEST_SKIP() << "no numeric/rope.json";
  auto backend = MakeBackend(DeviceKind::kCpu);
  const nlohmann::json file = testing::ReadJson(*path);
  for (const auto& c : file["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::vector<float> inv_freq = FromHex(c["inv_freq_f32le_hex"].get<std::string>());
    const auto positions = c["positions"].get<std::vector<int32_t>>();
    const int64_t half = static_cast<int64_t>(inv_freq.size()), rows = static_cast<int64_t>(positions.size());
    std::vector<float> table(rows * 2 * half);
    const F32Matrix cos_sin(table.data(), rows, 2 * half);
    ASSERT_TRUE(backend->ops()
                    .RopeTable({.positions = positions,
                                .inv_freq = inv_freq,
                                .attention_factor = c["attention_factor"].get<float>(),
                                .cos_sin = cos_sin})
                    .ok());
    for (int64_t t = 0; t < rows; ++t) {
      const auto& pairs = c["pairs"];
      for (size_t i = 0; i < pairs.size(); ++i) {
        const int64_t pair = pairs[i].get<int64_t>();
        EXPECT_NEAR(cos_sin.row(t)[pair], c["cos"][t][i].get<double>(), 1e-6);
        EXPECT_NEAR(cos_sin.row(t)[half + pair], c["sin"][t][i].get<double>(), 1e-6);
      }
    }
  }
}

TEST(ElementwiseTest, RotationExample) {
  const auto path = testing::RefPath("numeric/rope.json");
  if (!path) GTEST_SKIP() << "no numeric/rope.json";
  const nlohmann::json example = testing::ReadJson(*path)["rotation_example"];
  const auto expected = example["half_split"].get<std::vector<double>>();
  const int64_t dim = static_cast<int64_t>(expected.size());
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < dim / 2; ++i) {
    inv_freq.push_back(static_cast<float>(
        std::pow(example["theta"].get<double>(), -2.0 * static_cast<double>(i) / static_cast<double>(dim))));
  }
  std::vector<std::unique_ptr<Backend>> backends = CpuBackends();
  backends.push_back(MakeBackend(DeviceKind::kReference));
  for (const auto& backend : backends) {
    std::vector<float> qkv = example["x"].get<std::vector<float>>(), table(dim);
    qkv.insert(qkv.end(), qkv.begin(), qkv.begin() + dim);
    qkv.insert(qkv.end(), qkv.begin(), qkv.begin() + dim);
    const std::vector<int32_t> positions = {example["position"].get<int32_t>()}, slots = {3};
    const F32Matrix cos_sin(table.data(), 1, dim);
    ASSERT_TRUE(backend->ops().RopeTable({.positions = positions, .inv_freq = inv_freq, .cos_sin = cos_sin}).ok());
    std::vector<float> cache(2 * 8 * dim);
    const PagedKvView kv{.data = cache.data(),
                         .dtype = DType::kF32,
                         .num_blocks = 1,
                         .block_size = 8,
                         .num_kv_heads = 1,
                         .head_dim = static_cast<int32_t>(dim)};
    ASSERT_TRUE(backend->ops()
                    .RopeAndStoreKv({.qkv = F32Matrix(qkv.data(), 1, 3 * dim),
                                     .num_heads = 1,
                                     .cos_sin = cos_sin,
                                     .slot_mapping = slots,
                                     .kv = kv})
                    .ok());
    for (int64_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(qkv[i], expected[i], 2e-6);                             // q in place
      EXPECT_NEAR(cache[3 * dim + i], expected[i], 2e-6);                 // k, slot 3
      EXPECT_EQ(cache[(8 + 3) * dim + i], example["x"][i].get<float>());  // v as it is
    }
  }
}

// Partial rotation and odd sizes; q, k rotated and the cache, bit for bit.
TEST(ElementwiseTest, RopeAndStoreKvIsTheSameOnAllPaths) {
  const auto backends = CpuBackends();
  for (int32_t dim : {2, 20, 64, 80}) {
    for (int64_t rotary : {int64_t{0}, int64_t{2}, int64_t{dim} / 4 * 2, int64_t{dim}}) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBf16, DType::kI8}) {
        const int64_t rows = 21, width = (4 + 2 * 2) * dim;
        const std::vector<float> cos_sin = RandomValues(rows * rotary, 4);
        std::vector<int32_t> slots(rows);
        for (int32_t t = 0; t < rows; ++t) slots[t] = (t * 5) % 24;
        std::vector<float> first_qkv;
        std::vector<char> first_cache;
        for (const auto& backend : backends) {
          std::vector<float> qkv = RandomValues(rows * width, 9, 20000), table = cos_sin;
          PagedKvView kv{
              .data = nullptr, .dtype = dtype, .num_blocks = 3, .block_size = 8, .num_kv_heads = 2, .head_dim = dim};
          std::vector<char> cache(3 * kv.bytes_per_block());
          kv.data = cache.data();
          ASSERT_TRUE(backend->ops()
                          .RopeAndStoreKv({.qkv = F32Matrix(qkv.data(), rows, width),
                                           .num_heads = 4,
                                           .cos_sin = F32Matrix(table.data(), rows, rotary),
                                           .slot_mapping = slots,
                                           .kv = kv})
                          .ok());
          if (first_qkv.empty()) first_qkv = qkv, first_cache = cache;
          ExpectSameBits(first_qkv, qkv);
          EXPECT_EQ(std::memcmp(first_cache.data(), cache.data(), cache.size()), 0);
        }
      }
    }
  }
}

// K = V = `x`, one token and head, as the cache holds it: [K | V | scale of K | scale of V].
std::vector<std::byte> StoreRow(Backend& backend, DType dtype, const std::vector<float>& x) {
  std::vector<float> qkv;
  for (int part = 0; part < 3; ++part) qkv.insert(qkv.end(), x.begin(), x.end());
  PagedKvView kv{
      .dtype = dtype, .num_blocks = 1, .block_size = 1, .num_kv_heads = 1, .head_dim = static_cast<int32_t>(x.size())};
  std::vector<std::byte> cache(kv.bytes_per_block(), std::byte{0xff});
  kv.data = cache.data();
  const std::vector<int32_t> slots = {0};
  EXPECT_TRUE(backend.ops()
                  .RopeAndStoreKv({.qkv = F32Matrix(qkv.data(), 1, static_cast<int64_t>(qkv.size())),
                                   .num_heads = 1,
                                   .cos_sin = F32Matrix(nullptr, 1, 0),
                                   .slot_mapping = slots,
                                   .kv = kv})
                  .ok());
  return cache;
}

float FloatAt(const std::vector<std::byte>& bytes, size_t at) {
  float value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

TEST(QuantisedKvTest, Int8MatchesReference) {
  const auto path = testing::RefPath("numeric/kv_quant.json");
  if (!path) GTEST_SKIP() << "no numeric/kv_quant.json";
  int checked = 0;
  const nlohmann::json cases = testing::ReadJson(*path)["cases"];
  for (const auto& c : cases) {
    const std::vector<float> x = FromHex(c["input_f32le_hex"].get<std::string>());
    const nlohmann::json& rule = c["int8_symmetric"];
    const auto codes = rule["codes"].get<std::vector<int>>(), near_tie = rule["near_tie"].get<std::vector<int>>();
    const auto scale = rule["scales"][0].get<double>();
    for (const auto& backend : CpuBackends()) {
      const std::vector<std::byte> stored = StoreRow(*backend, DType::kI8, x);
      for (const size_t first : {size_t{0}, x.size()}) {
        EXPECT_NEAR(FloatAt(stored, 2 * x.size() + (first == 0 ? 0 : 4)), scale, scale * 1e-6);
        for (size_t i = 0; i < x.size(); ++i) {
          const bool may_differ = std::find(near_tie.begin(), near_tie.end(), static_cast<int>(i)) != near_tie.end();
          EXPECT_NEAR(static_cast<int8_t>(stored[first + i]), codes[i], may_differ ? 1 : 0) << checked << " " << i;
        }
      }
    }
    ++checked;
  }
  EXPECT_GE(checked, 10);
}

TEST(QuantisedKvTest, Int8OfWhatIsTinyOrNotFinite) {
  for (const auto& backend : CpuBackends()) {
    for (const float odd : {1e-38f, -1e-44f, NAN, INFINITY, -INFINITY, std::numeric_limits<float>::max()}) {
      std::vector<float> x(20);
      x[17] = odd;
      const std::vector<std::byte> stored = StoreRow(*backend, DType::kI8, x);
      const bool large = odd == std::numeric_limits<float>::max();
      for (size_t i = 0; i < 40; ++i) EXPECT_EQ(static_cast<int8_t>(stored[i]), large && i % 20 == 17 ? 127 : 0) << odd;
      for (const size_t at : {40, 44}) {
        if (std::isfinite(odd)) {
          EXPECT_EQ(FloatAt(stored, at), large ? odd / 127 : 0);
        } else {
          EXPECT_TRUE(std::isnan(FloatAt(stored, at)));
        }
      }
    }
  }
}

// half.json through the scalar conversions, and through the stores into caches of f16, which saturate, and of bf16.
TEST(HalfTest, MatchesReference) {
  const auto path = testing::RefPath("numeric/half.json");
  if (!path) GTEST_SKIP() << "no numeric/half.json";
  const nlohmann::json file = testing::ReadJson(*path);
  std::vector<float> input = FromHex(file["input_f32le_hex"].get<std::string>());
  const std::vector<uint16_t> bf16 = HalvesFromHex(file["bf16_code_hex"].get<std::string>());
  const std::vector<uint16_t> f16 = HalvesFromHex(file["fp16_code_hex"].get<std::string>());
  ASSERT_EQ(input.size(), file["count"].get<size_t>());
  for (size_t i = 0; i < input.size(); ++i) {
    if (std::isnan(input[i])) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(input[i]))) && std::isnan(Bf16ToF32(F32ToBf16(input[i])))) << i;
      continue;
    }
    EXPECT_EQ(F32ToF16(input[i]), f16[i]) << input[i];
    EXPECT_EQ(F32ToBf16(input[i]), bf16[i]) << input[i];
  }
  const int64_t dim = 20, rows = static_cast<int64_t>(input.size()) / dim;
  for (const auto& backend : CpuBackends()) {
    std::vector<float> qkv;
    std::vector<int32_t> slots;
    for (int64_t t = 0; t < rows; ++t) {
      for (int part = 0; part < 3; ++part)
        qkv.insert(qkv.end(), input.begin() + t * dim, input.begin() + (t + 1) * dim);
      slots.push_back(static_cast<int32_t>(t));
    }
    for (const bool in_f16 : {true, false}) {
      std::vector<uint16_t> cache(rows * 2 * dim);
      const PagedKvView kv{.data = cache.data(),
                           .dtype = in_f16 ? DType::kF16 : DType::kBf16,
                           .num_blocks = rows,
                           .block_size = 1,
                           .num_kv_heads = 1,
                           .head_dim = static_cast<int32_t>(dim)};
      ASSERT_TRUE(backend->ops()
                      .RopeAndStoreKv({.qkv = F32Matrix(qkv.data(), rows, 3 * dim),
                                       .num_heads = 1,
                                       .cos_sin = F32Matrix(nullptr, rows, 0),
                                       .slot_mapping = slots,
                                       .kv = kv})
                      .ok());
      for (int64_t i = 0; i < rows * dim; ++i) {
        const uint16_t stored = cache[i / dim * 2 * dim + i % dim];
        const bool saturates = in_f16 && (f16[i] & 0x7fff) == 0x7c00;
        if (std::isnan(input[i])) {
          EXPECT_TRUE(std::isnan(in_f16 ? F16ToF32(stored) : Bf16ToF32(stored))) << i;
        } else {
          const int expected = in_f16 ? f16[i] : bf16[i];
          EXPECT_EQ(stored, saturates ? (expected & 0x8000) | 0x7bff : expected) << backend->Describe() << input[i];
        }
      }
    }
  }
}

TEST(ElementwiseTest, GatherAndCopy) {
  for (DeviceKind kind : {DeviceKind::kReference, DeviceKind::kCpu}) {
    auto backend = MakeBackend(kind);
    std::vector<float> x = RandomValues(6 * 5, 1), out(3 * 5);
    const std::vector<int32_t> rows = {5, 0, 5};
    ASSERT_TRUE(backend->ops()
                    .GatherRows({.rows = rows, .x = F32Matrix(x.data(), 6, 5), .out = F32Matrix(out.data(), 3, 5)})
                    .ok());
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < 5; ++i) EXPECT_EQ(out[r * 5 + i], x[rows[r] * 5 + i]);
    }
    std::vector<float> cache = RandomValues(4 * 2 * 8 * 2 * 4, 2);
    const std::vector<float> before = cache;
    const int64_t block = 2 * 8 * 2 * 4;
    const PagedKvView kv{
        .data = cache.data(), .dtype = DType::kF32, .num_blocks = 4, .block_size = 8, .num_kv_heads = 2, .head_dim = 4};
    const std::vector<BlockCopyIds> copies = {{0, 1}, {1, 3}};  // in order: 3 becomes 0 too
    ASSERT_TRUE(backend->ops().CopyBlocks({.copies = copies, .kv = kv}).ok());
    for (int64_t i = 0; i < block; ++i) {
      EXPECT_EQ(cache[block + i], before[i]);
      EXPECT_EQ(cache[2 * block + i], before[2 * block + i]);
      EXPECT_EQ(cache[3 * block + i], before[i]);
    }
    const std::vector<BlockCopyIds> bad = {{0, 4}};
    EXPECT_EQ(backend->ops().CopyBlocks({.copies = bad, .kv = kv}).message(), "CopyBlocks: dst is 4, expected 0..3");

    // To the host, whose blocks are further apart, and back into another block.
    std::vector<float> host(2 * (block + 16), -1);
    const HostKvView host_kv{.data = host.data(), .num_blocks = 2, .stride = (block + 16) * 4};
    const std::vector<BlockCopyIds> there_and_back = {{2, 5}, {5, 0}};
    ASSERT_TRUE(backend->ops().CopyBlocks({.copies = there_and_back, .kv = kv, .host = host_kv}).ok());
    for (int64_t i = 0; i < block; ++i) {
      EXPECT_EQ(host[block + 16 + i], before[2 * block + i]);
      EXPECT_EQ(cache[i], before[2 * block + i]);
      EXPECT_EQ(host[i], -1);
    }
    EXPECT_EQ(host.back(), -1);
    const std::vector<BlockCopyIds> beyond = {{6, 1}};
    EXPECT_EQ(backend->ops().CopyBlocks({.copies = beyond, .kv = kv, .host = host_kv}).message(),
              "CopyBlocks: src is 6, expected 0..5");
    EXPECT_EQ(backend->ops()
                  .CopyBlocks({.copies = copies, .kv = kv, .host = {.data = host.data(), .num_blocks = 1, .stride = 4}})
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(BackendTest, FactoryRefusesWhatIsNotThere) {
#ifdef QUIRE_WITH_CUDA
  const BackendOptions no_such_device = {.kind = DeviceKind::kCuda, .device_index = 1000};
  EXPECT_EQ(CreateBackend(no_such_device).status().code(), absl::StatusCode::kUnavailable);
#else
  EXPECT_EQ(CreateBackend({.kind = DeviceKind::kCuda}).status().code(), absl::StatusCode::kUnimplemented);
#endif
  EXPECT_EQ(CreateBackend({.kind = DeviceKind::kSim}).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CreateBackend({.num_threads = 257}).status().message(), "num_threads is 257, expected 0..256");
  EXPECT_EQ(CreateBackend({.num_threads = -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AvailableCpuIsas()[0], CpuIsa::kScalar);
}

TEST(BackendTest, AllocatesZeroedAlignedMemory) {
  for (DeviceKind kind : {DeviceKind::kReference, DeviceKind::kCpu}) {
    auto backend = MakeBackend(kind);
    for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{2} << 20, (int64_t{5} << 20) + 3}) {
      auto buffer = backend->Allocate(bytes);
      ASSERT_TRUE(buffer.ok());
      EXPECT_EQ(buffer->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (bytes >= int64_t{2} << 20 ? 2 << 20 : 64), 0u);
      for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer->as<char>()[i], 0);
    }
    EXPECT_EQ(backend->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(backend->Allocate(int64_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace quire
