#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/architectures.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/safetensors.h"

// Which tensors a model consists of, by name and shape: what a configuration promises and a file must hold. No values.
namespace quire {

// What the configuration says of a part: rows x cols, or a vector of `rows` if cols is 0.
struct PartShape {
  int64_t rows = 0;
  int64_t cols = 0;
  bool has_bias = false;
};
PartShape ShapeOf(const ModelConfig& config, Part part);

// True if the part stands once in every layer, false if once in the model.
constexpr bool IsPerLayer(Part part) { return part >= Part::kAttentionNorm; }

enum class Container : uint8_t { kSafetensors, kGguf };

// The name of a part's weight, or of its bias, in such a file. `layer` is ignored for parts of the whole model.
// `config.architecture` is a known one, here and below.
std::string TensorName(const ModelConfig& config, Container container, Part part, int32_t layer, bool is_bias = false);

// All that a file of the model must hold.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;  // slowest first
};
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Container container);

// kInvalidArgument naming file and tensor, and shape found and expected where it is the shape: nothing is missing and,
// in a GGUF file, whose tensors define the model, nothing is there that the architecture does not know.
absl::Status CheckTensors(const GgufFile& file, const ModelConfig& config);
absl::Status CheckTensors(const SafetensorsDirectory& files, const ModelConfig& config);

}  // namespace quire
