#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "model/architectures.h"
#include "model/config.h"

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

// Where weights come from. Every shape has been checked against the configuration when a tensor is handed out, and q
// and k come with the row order that half-split rotation needs. Thread-compatible.
//
// Errors are kInvalidArgument naming file and tensor, and shape found and expected where it is the shape.
// `layer` is ignored for parts of the whole model.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // A matrix part. The view is valid until Release or the end of the source.
  virtual absl::StatusOr<WeightView> Matrix(Part part, int32_t layer) = 0;
  // A vector part (norms), and the bias of a matrix part that has one.
  virtual absl::StatusOr<std::vector<float>> Vector(Part part, int32_t layer) = 0;
  virtual absl::StatusOr<std::vector<float>> Bias(Part part, int32_t layer) = 0;

  // The views handed out so far are not used any more.
  virtual void Release() {}
};

// The weights in a Hugging Face directory or a .gguf file, all of which have been found and checked: nothing is missing
// and, in a GGUF file, whose tensors define the model, nothing is there that the architecture does not know. `config`
// is what LoadModelConfig gave for the same path; it must outlive the source.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& path, const ModelConfig& config);

// Weights from nothing but shapes and `seed`, in bf16: for measuring. `config` must outlive the source.
std::unique_ptr<WeightSource> CreateRandomWeightSource(const ModelConfig& config, uint64_t seed);

}  // namespace quire
