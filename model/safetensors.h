#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/mapped_file.h"

namespace quire {

// One .safetensors file (formats.md 6.2, after the reference implementation), mapped into memory and validated before
// anything in it is used: tensors cover the data area without hole or overlap. A header must begin with `{`.
// Immutable after Open; thread-compatible. Views returned live as long as the file object.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string name;
    std::string_view dtype;           // "BF16"; one of the format's names
    std::vector<int64_t> shape;       // slowest first; empty for a scalar
    const std::byte* data = nullptr;  // any alignment
    int64_t bytes = 0;
  };

  // kNotFound, or kInvalidArgument "<path>: what is wrong, with which tensor".
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  absl::Span<const Tensor> tensors() const { return tensors_; }  // in order of their data
  const Tensor* FindTensor(std::string_view name) const;         // null if absent

 private:
  SafetensorsFile() = default;
  absl::Status Parse();
  absl::Status CheckCoverage(uint64_t data_bytes, absl::Span<const uint64_t> begins) const;
  absl::Status Error(std::string_view what) const;

  std::string path_;
  MappedFile file_;
  std::vector<Tensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> tensor_index_;
};

// The weights of a Hugging Face directory: model.safetensors, or the shards that model.safetensors.index.json names.
// A shard is a plain file name of that directory; a tensor counts only if the index maps it to the shard that holds it;
// the index's total_size is not looked at. The same guarantees as SafetensorsFile.
class SafetensorsDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsDirectory>> Open(const std::string& directory);

  const std::string& path() const { return path_; }
  const SafetensorsFile::Tensor* FindTensor(std::string_view name) const;  // null if absent
  // By name, in no particular order.
  const absl::flat_hash_map<std::string_view, const SafetensorsFile::Tensor*>& tensors() const { return tensors_; }

 private:
  SafetensorsDirectory() = default;
  absl::Status OpenShards(const std::string& index_path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  absl::flat_hash_map<std::string_view, const SafetensorsFile::Tensor*> tensors_;
};

}  // namespace quire
