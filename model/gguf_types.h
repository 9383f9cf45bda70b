#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/base/dtype.h"

namespace quire {

// One of GGUF's tensor types (enum ggml_type of ggml-org/ggml's ggml.h; sizes from its ggml-common.h).
struct GgufTypeInfo {
  uint32_t id;
  std::string_view name;
  int32_t block_length;  // values in a block
  int32_t block_bytes;
};

// The type with GGUF's number `id`; null if there is none (never defined, or removed).
const GgufTypeInfo* FindGgufType(uint32_t id);

// The format in which kernels take matrices of that type; nullopt for types that the file reader knows but no kernel
// does.
std::optional<WeightFormat> WeightFormatOfGgufType(uint32_t id);

}  // namespace quire
