#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

// Element types of tensors and of the KV cache.
enum class DType : uint8_t { kF32, kF16, kBf16, kI32, kI64, kI8, kU8, kFp8E4m3 };

// Bytes of one element.
constexpr int64_t SizeOf(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBf16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kI8:
    case DType::kU8:
    case DType::kFp8E4m3:
      return 1;
  }
  return 0;
}

// "f32", "f16", ...: those of a KV cache as --kv-cache-dtype spells them.
constexpr std::string_view Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBf16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "u8";
    case DType::kFp8E4m3:
      return "fp8_e4m3";
  }
  return "?";
}

// What K and V may be stored as. kI8: value = integer * scale, a scale (f32) a token and head, beside the rows.
inline constexpr DType kKvDTypes[] = {DType::kF32, DType::kF16, DType::kBf16, DType::kFp8E4m3, DType::kI8};

// Of the name; nullopt if it is none of kKvDTypes.
constexpr std::optional<DType> FindKvDType(std::string_view name) {
  for (const DType type : kKvDTypes) {
    if (Name(type) == name) return type;
  }
  return std::nullopt;
}

// Bytes of the scale beside each row of K and of V.
constexpr int64_t KvScaleBytes(DType type) { return type == DType::kI8 ? 4 : 0; }

// Bytes of K (V has as many) of one token and head, its scale included.
constexpr int64_t KvRowBytes(DType type, int64_t head_dim) { return head_dim * SizeOf(type) + KvScaleBytes(type); }

// How the rows of a weight matrix are stored in a model file. Block formats are GGUF's (ggml-common.h of ggml-org/ggml
// defines their bytes).
enum class WeightFormat : uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };
inline constexpr WeightFormat kAllWeightFormats[] = {WeightFormat::kF32,  WeightFormat::kF16,  WeightFormat::kBf16,
                                                     WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_1,
                                                     WeightFormat::kQ5_0, WeightFormat::kQ5_1, WeightFormat::kQ4_K,
                                                     WeightFormat::kQ5_K, WeightFormat::kQ6_K};

// Name, values in a block (1: no blocks), bytes of a block.
struct WeightFormatInfo {
  std::string_view name;
  int32_t block_length;
  int32_t block_bytes;
};

constexpr WeightFormatInfo Info(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {"F32", 1, 4};
    case WeightFormat::kF16:
      return {"F16", 1, 2};
    case WeightFormat::kBf16:
      return {"BF16", 1, 2};
    case WeightFormat::kQ8_0:
      return {"Q8_0", 32, 34};
    case WeightFormat::kQ4_0:
      return {"Q4_0", 32, 18};
    case WeightFormat::kQ4_1:
      return {"Q4_1", 32, 20};
    case WeightFormat::kQ5_0:
      return {"Q5_0", 32, 22};
    case WeightFormat::kQ5_1:
      return {"Q5_1", 32, 24};
    case WeightFormat::kQ4_K:
      return {"Q4_K", 256, 144};
    case WeightFormat::kQ5_K:
      return {"Q5_K", 256, 176};
    case WeightFormat::kQ6_K:
      return {"Q6_K", 256, 210};
  }
  return {"?", 1, 0};
}

// Bytes of one row of `cols` values; `cols` must be a multiple of the block length.
constexpr int64_t RowBytes(WeightFormat format, int64_t cols) {
  return cols / Info(format).block_length * Info(format).block_bytes;
}

}  // namespace quire
