#include "model/weight_source.h"

#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/dequantize.h"
#include "model/gguf.h"
#include "model/gguf_types.h"
#include "model/printable.h"
#include "model/safetensors.h"

namespace quire {
namespace {

constexpr Part kLastPart = Part::kDown;

// A tensor as a file holds it.
struct StoredTensor {
  std::string_view type;               // the file's name for it
  std::optional<WeightFormat> format;  // empty if no kernel takes that type
  std::vector<int64_t> shape;          // slowest first
  const std::byte* data = nullptr;
};

// Stored rows in the order that half-split rotation wants, for `heads` heads whose stored neighbours rotate together.
std::vector<int32_t> DeinterleavedRows(int32_t heads, int32_t head_dim, int32_t rotary_dim) {
  std::vector<int32_t> order;
  for (int32_t first = 0; first < heads * head_dim; first += head_dim) {
    for (int32_t i = 0; i < rotary_dim; i += 2) order.push_back(first + i);
    for (int32_t i = 1; i < rotary_dim; i += 2) order.push_back(first + i);
    for (int32_t i = rotary_dim; i < head_dim; ++i) order.push_back(first + i);
  }
  return order;
}

// Names, checks and order; the two kinds of files below it only look a tensor up.
class FileWeightSource : public WeightSource {
 public:
  absl::StatusOr<WeightView> Matrix(Part part, int32_t layer) override {
    QUIRE_ASSIGN_OR_RETURN(const StoredTensor tensor, Find(Name(part, layer, ".weight"), ShapeOf(config_, part)));
    const PartShape shape = ShapeOf(config_, part);
    return WeightView{*tensor.format, shape.rows, shape.cols, tensor.data, RowBytes(*tensor.format, shape.cols),
                      RowOrder(part)};
  }

  absl::StatusOr<std::vector<float>> Vector(Part part, int32_t layer) override {
    return ReadVector(Name(part, layer, ".weight"), ShapeOf(config_, part).rows);
  }

  absl::StatusOr<std::vector<float>> Bias(Part part, int32_t layer) override {
    QUIRE_ASSIGN_OR_RETURN(std::vector<float> stored,
                           ReadVector(Name(part, layer, ".bias"), ShapeOf(config_, part).rows));
    const absl::Span<const int32_t> order = RowOrder(part);
    if (order.empty()) return stored;
    std::vector<float> values;
    for (int32_t row : order) values.push_back(stored[row]);
    return values;
  }

  // Finds every tensor of the model once; their names.
  absl::StatusOr<std::unordered_set<std::string>> CheckAll() {
    std::unordered_set<std::string> names;
    for (int index = 0; index <= static_cast<int>(kLastPart); ++index) {
      const Part part{static_cast<uint8_t>(index)};
      if (part == Part::kHead && config_.tie_word_embeddings) continue;
      const PartShape shape = ShapeOf(config_, part);
      for (int32_t layer = 0; layer < (IsPerLayer(part) ? config_.num_layers : 1); ++layer) {
        const std::string name = Name(part, layer, ".weight");
        QUIRE_RETURN_IF_ERROR(Find(name, shape).status());
        names.insert(name);
        if (!shape.has_bias) continue;
        const std::string bias_name = Name(part, layer, ".bias");
        QUIRE_RETURN_IF_ERROR(Find(bias_name, {.rows = shape.rows}).status());
        names.insert(bias_name);
      }
    }
    return names;
  }

 protected:
  FileWeightSource(std::string path, const ModelConfig& config, bool gguf)
      : path_(std::move(path)), config_(config), architecture_(FindArchitecture(config.architecture)), gguf_(gguf) {
    QUIRE_CHECK(architecture_ != nullptr);
    if (gguf && architecture_->gguf_interleaved_rows) {
      query_order_ = DeinterleavedRows(config.num_heads, config.head_dim, config.rope.rotary_dim);
      key_order_ = DeinterleavedRows(config.num_kv_heads, config.head_dim, config.rope.rotary_dim);
    }
  }

  virtual std::optional<StoredTensor> Lookup(const std::string& name) const = 0;

  absl::Status Error(std::string_view name, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrFormat("%s: tensor %s %s", path_, Printable(name), what));
  }

 private:
  std::string Name(Part part, int32_t layer, const char* suffix) const {
    const PartNames& names = architecture_->part_names[static_cast<size_t>(part)];
    return absl::StrCat(absl::StrReplaceAll(gguf_ ? names.gguf : names.hugging_face, {{"%d", absl::StrCat(layer)}}),
                        suffix);
  }

  absl::Span<const int32_t> RowOrder(Part part) const {
    if (part == Part::kQuery) return query_order_;
    if (part == Part::kKey) return key_order_;
    return {};
  }

  absl::StatusOr<StoredTensor> Find(const std::string& name, const PartShape& shape) const {
    std::optional<StoredTensor> tensor = Lookup(name);
    if (!tensor) return Error(name, "is missing");
    std::vector<int64_t> expected = {shape.rows};
    if (shape.cols > 0) expected.push_back(shape.cols);
    if (tensor->shape != expected) {
      return Error(name, absl::StrFormat("has the shape [%s], expected is [%s]", absl::StrJoin(tensor->shape, ", "),
                                         absl::StrJoin(expected, ", ")));
    }
    if (!tensor->format) return Error(name, absl::StrFormat("has the type %s, which is not supported", tensor->type));
    return *std::move(tensor);
  }

  absl::StatusOr<std::vector<float>> ReadVector(const std::string& name, int64_t size) const {
    QUIRE_ASSIGN_OR_RETURN(const StoredTensor tensor, Find(name, {.rows = size}));
    std::vector<float> values(size);
    DequantizeRow(*tensor.format, tensor.data, values.data(), size);
    return values;
  }

  std::string path_;
  const ModelConfig& config_;
  const Architecture* architecture_;
  bool gguf_;
  std::vector<int32_t> query_order_, key_order_;  // empty: as stored
};

class HfWeightSource : public FileWeightSource {
 public:
  HfWeightSource(std::unique_ptr<SafetensorsDirectory> files, const ModelConfig& config)
      : FileWeightSource(files->path(), config, /*gguf=*/false), files_(std::move(files)) {}

 private:
  std::optional<StoredTensor> Lookup(const std::string& name) const override {
    const SafetensorsFile::Tensor* found = files_->FindTensor(name);
    if (found == nullptr) return std::nullopt;
    StoredTensor tensor{.type = found->dtype, .format = {}, .shape = found->shape, .data = found->data};
    for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16}) {
      if (Info(format).name == found->dtype) tensor.format = format;
    }
    return tensor;
  }

  std::unique_ptr<SafetensorsDirectory> files_;
};

class GgufWeightSource : public FileWeightSource {
 public:
  GgufWeightSource(std::unique_ptr<GgufFile> file, const ModelConfig& config)
      : FileWeightSource(file->path(), config, /*gguf=*/true), file_(std::move(file)) {}

  absl::Status RefuseOthers(const std::unordered_set<std::string>& known) const {
    for (const GgufFile::Tensor& tensor : file_->tensors()) {
      const std::string name(tensor.name);
      // Rotation tables: the first is part of the configuration, the second of old files and computed anyway.
      const bool is_table = name == "rope_freqs.weight" || absl::EndsWith(name, ".attn_rot_embd.weight");
      if (!known.contains(name) && !is_table) return Error(name, "is not known to this architecture");
    }
    return absl::OkStatus();
  }

 private:
  std::optional<StoredTensor> Lookup(const std::string& name) const override {
    const GgufFile::Tensor* found = file_->FindTensor(name);
    if (found == nullptr) return std::nullopt;
    return StoredTensor{.type = FindGgufType(found->type)->name,
                        .format = WeightFormatOfGgufType(found->type),
                        .shape = {found->dims.rbegin(), found->dims.rend()},
                        .data = found->data};
  }

  std::unique_ptr<GgufFile> file_;
};

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

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& path, const ModelConfig& config) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsDirectory> files, SafetensorsDirectory::Open(path));
    auto source = std::make_unique<HfWeightSource>(std::move(files), config);
    QUIRE_RETURN_IF_ERROR(source->CheckAll().status());
    return source;
  }
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto source = std::make_unique<GgufWeightSource>(std::move(file), config);
  QUIRE_ASSIGN_OR_RETURN(const std::unordered_set<std::string> names, source->CheckAll());
  QUIRE_RETURN_IF_ERROR(source->RefuseOthers(names));
  return source;
}

}  // namespace quire
