#include "model/weight_source.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/dequantize.h"
#include "model/gguf.h"
#include "model/gguf_types.h"
#include "model/printable.h"
#include "model/safetensors.h"

namespace quire {
namespace {

// A tensor as a file holds it.
struct StoredTensor {
  std::string_view type;               // the file's name for it
  std::optional<WeightFormat> format;  // empty if no kernel takes that type
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
    QUIRE_ASSIGN_OR_RETURN(const StoredTensor tensor, Find(TensorName(config_, container_, part, layer)));
    const PartShape shape = ShapeOf(config_, part);
    return WeightView{*tensor.format, shape.rows, shape.cols, tensor.data, RowBytes(*tensor.format, shape.cols),
                      RowOrder(part)};
  }

  absl::StatusOr<std::vector<float>> Vector(Part part, int32_t layer) override {
    return ReadVector(TensorName(config_, container_, part, layer), ShapeOf(config_, part).rows);
  }

  absl::StatusOr<std::vector<float>> Bias(Part part, int32_t layer) override {
    QUIRE_ASSIGN_OR_RETURN(
        std::vector<float> stored,
        ReadVector(TensorName(config_, container_, part, layer, /*is_bias=*/true), ShapeOf(config_, part).rows));
    const absl::Span<const int32_t> order = RowOrder(part);
    if (order.empty()) return stored;
    std::vector<float> values;
    for (int32_t row : order) values.push_back(stored[row]);
    return values;
  }

  // Whether kernels take all types.
  absl::Status CheckTypes() const {
    for (const ExpectedTensor& tensor : ExpectedTensors(config_, container_))
      QUIRE_RETURN_IF_ERROR(Find(tensor.name).status());
    return absl::OkStatus();
  }

 protected:
  // The file has passed CheckTensors.
  FileWeightSource(std::string path, const ModelConfig& config, Container container)
      : path_(std::move(path)), config_(config), container_(container) {
    const Architecture* const architecture = FindArchitecture(config.architecture);
    QUIRE_CHECK(architecture != nullptr);
    if (container == Container::kGguf && architecture->gguf_interleaved_rows) {
      query_order_ = DeinterleavedRows(config.num_heads, config.head_dim, config.rope.rotary_dim);
      key_order_ = DeinterleavedRows(config.num_kv_heads, config.head_dim, config.rope.rotary_dim);
    }
  }

  virtual std::optional<StoredTensor> Lookup(const std::string& name) const = 0;

 private:
  absl::Span<const int32_t> RowOrder(Part part) const {
    if (part == Part::kQuery) return query_order_;
    if (part == Part::kKey) return key_order_;
    return {};
  }

  absl::StatusOr<StoredTensor> Find(const std::string& name) const {
    std::optional<StoredTensor> tensor = Lookup(name);
    QUIRE_CHECK(tensor.has_value());
    if (tensor->format) return *std::move(tensor);
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor %s has the type %s, which is not supported", path_, Printable(name), tensor->type));
  }

  absl::StatusOr<std::vector<float>> ReadVector(const std::string& name, int64_t size) const {
    QUIRE_ASSIGN_OR_RETURN(const StoredTensor tensor, Find(name));
    std::vector<float> values(size);
    DequantizeRow(*tensor.format, tensor.data, values.data(), size);
    return values;
  }

  const std::string path_;
  const ModelConfig& config_;
  const Container container_;
  std::vector<int32_t> query_order_, key_order_;  // empty: as stored
};

class HfWeightSource : public FileWeightSource {
 public:
  HfWeightSource(std::unique_ptr<SafetensorsDirectory> files, const ModelConfig& config)
      : FileWeightSource(files->path(), config, Container::kSafetensors), files_(std::move(files)) {}

 private:
  std::optional<StoredTensor> Lookup(const std::string& name) const override {
    const SafetensorsFile::Tensor* found = files_->FindTensor(name);
    if (found == nullptr) return std::nullopt;
    StoredTensor tensor{.type = found->dtype, .format = {}, .data = found->data};
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
      : FileWeightSource(file->path(), config, Container::kGguf), file_(std::move(file)) {}

 private:
  std::optional<StoredTensor> Lookup(const std::string& name) const override {
    const GgufFile::Tensor* found = file_->FindTensor(name);
    if (found == nullptr) return std::nullopt;
    return StoredTensor{
        .type = FindGgufType(found->type)->name, .format = WeightFormatOfGgufType(found->type), .data = found->data};
  }

  std::unique_ptr<GgufFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& path, const ModelConfig& config) {
  std::unique_ptr<FileWeightSource> source;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsDirectory> files, SafetensorsDirectory::Open(path));
    QUIRE_RETURN_IF_ERROR(CheckTensors(*files, config));
    source = std::make_unique<HfWeightSource>(std::move(files), config);
  } else {
    QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
    QUIRE_RETURN_IF_ERROR(CheckTensors(*file, config));
    source = std::make_unique<GgufWeightSource>(std::move(file), config);
  }
  QUIRE_RETURN_IF_ERROR(source->CheckTypes());
  return source;
}

}  // namespace quire
