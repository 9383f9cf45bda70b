#include "model/model_tensors.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"

namespace quire {
namespace {

constexpr Part kLastPart = Part::kDown;

absl::Status Error(const std::string& path, std::string_view tensor, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrFormat("%s: tensor %s %s", path, Printable(tensor), what));
}

// `found`: as the file has it; empty if it has not.
absl::Status CheckTensor(const std::string& path, const ExpectedTensor& expected,
                         const std::optional<std::vector<int64_t>>& found) {
  if (!found) return Error(path, expected.name, "is missing");
  if (*found == expected.shape) return absl::OkStatus();
  return Error(path, expected.name,
               absl::StrFormat("has the shape [%s], expected is [%s]", absl::StrJoin(*found, ", "),
                               absl::StrJoin(expected.shape, ", ")));
}

// Rotation tables: the first is part of the configuration, the second of old files and computed anyway.
bool IsRotationTable(std::string_view name) {
  constexpr std::string_view kOld = ".attn_rot_embd.weight";
  return name == "rope_freqs.weight" || (name.size() >= kOld.size() && name.substr(name.size() - kOld.size()) == kOld);
}

}  // namespace

PartShape ShapeOf(const ModelConfig& config, Part part) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t query = int64_t{config.num_heads} * config.head_dim;
  const int64_t key = int64_t{config.num_kv_heads} * config.head_dim;
  switch (part) {
    case Part::kEmbedding:
    case Part::kHead:
      return {config.vocab_size, hidden};
    case Part::kFinalNorm:
    case Part::kAttentionNorm:
    case Part::kMlpNorm:
      return {hidden};
    case Part::kQuery:
      return {query, hidden, config.attention_bias};
    case Part::kKey:
    case Part::kValue:
      return {key, hidden, config.attention_bias};
    case Part::kOutput:
      return {hidden, query, config.attention_output_bias};
    case Part::kGate:
    case Part::kUp:
      return {inner, hidden, config.mlp_bias};
    case Part::kDown:
      return {hidden, inner, config.mlp_bias};
  }
  return {};
}

std::string TensorName(const ModelConfig& config, Container container, Part part, int32_t layer, bool is_bias) {
  const Architecture* const architecture = FindArchitecture(config.architecture);
  QUIRE_CHECK(architecture != nullptr);
  const PartNames& names = architecture->part_names[static_cast<size_t>(part)];
  return absl::StrCat(absl::StrReplaceAll(container == Container::kGguf ? names.gguf : names.hugging_face,
                                          {{"%d", absl::StrCat(layer)}}),
                      is_bias ? ".bias" : ".weight");
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config, Container container) {
  std::vector<ExpectedTensor> all;
  for (int index = 0; index <= static_cast<int>(kLastPart); ++index) {
    const Part part{static_cast<uint8_t>(index)};
    if (part == Part::kHead && config.tie_word_embeddings) continue;
    const PartShape shape = ShapeOf(config, part);
    for (int32_t layer = 0; layer < (IsPerLayer(part) ? config.num_layers : 1); ++layer) {
      ExpectedTensor& weight = all.emplace_back();
      weight.name = TensorName(config, container, part, layer);
      weight.shape = {shape.rows};
      if (shape.cols > 0) weight.shape.push_back(shape.cols);
      if (shape.has_bias) all.push_back({TensorName(config, container, part, layer, /*is_bias=*/true), {shape.rows}});
    }
  }
  return all;
}

absl::Status CheckTensors(const GgufFile& file, const ModelConfig& config) {
  absl::flat_hash_set<std::string> known;
  for (const ExpectedTensor& expected : ExpectedTensors(config, Container::kGguf)) {
    const GgufFile::Tensor* const tensor = file.FindTensor(expected.name);
    std::optional<std::vector<int64_t>> shape;
    if (tensor != nullptr) shape.emplace(tensor->dims.rbegin(), tensor->dims.rend());
    QUIRE_RETURN_IF_ERROR(CheckTensor(file.path(), expected, shape));
    known.insert(expected.name);
  }
  for (const GgufFile::Tensor& tensor : file.tensors()) {
    if (!known.contains(std::string(tensor.name)) && !IsRotationTable(tensor.name))
      return Error(file.path(), tensor.name, "is not known to this architecture");
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const SafetensorsDirectory& files, const ModelConfig& config) {
  for (const ExpectedTensor& expected : ExpectedTensors(config, Container::kSafetensors)) {
    const SafetensorsFile::Tensor* const tensor = files.FindTensor(expected.name);
    std::optional<std::vector<int64_t>> shape;
    if (tensor != nullptr) shape = tensor->shape;
    QUIRE_RETURN_IF_ERROR(CheckTensor(files.path(), expected, shape));
  }
  return absl::OkStatus();
}

}  // namespace quire
