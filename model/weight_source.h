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
#include "model/model_tensors.h"

namespace quire {

// Where weights come from. Every shape has been checked against the configuration before a tensor is handed out, and q
// and k come with the row order that half-split rotation needs. Thread-compatible.
//
// Errors are kInvalidArgument naming file, tensor and type: no kernel takes that type.
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

// The weights in a Hugging Face directory or a .gguf file, all of which have been found and checked (CheckTensors),
// their types too. `config` is what LoadModelConfig gave for the same path; it must outlive the source.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& path, const ModelConfig& config);

// Weights from nothing but shapes and `seed`, in bf16: for measuring. `config` must outlive the source.
std::unique_ptr<WeightSource> CreateRandomWeightSource(const ModelConfig& config, uint64_t seed);

}  // namespace quire
