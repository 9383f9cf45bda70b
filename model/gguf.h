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

// A GGUF file (version 2 or 3, little-endian; formats.md 6.3), mapped into memory and validated before anything in it
// is used: every count, length and offset is checked against the file, nothing is allocated by an unchecked number.
// Immutable after Open; thread-compatible. Views returned live as long as the file object.
class GgufFile {
 public:
  struct Tensor {
    std::string_view name;
    std::vector<int64_t> dims;  // as in the file: fastest first, at most 4
    uint32_t type = 0;          // GGUF's number
    const std::byte* data = nullptr;
    int64_t bytes = 0;
  };

  // kNotFound, or kInvalidArgument "<path>: what is wrong with which key or tensor".
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  absl::Span<const Tensor> tensors() const { return tensors_; }
  const Tensor* FindTensor(std::string_view name) const;  // null if absent

  bool Has(std::string_view key) const;
  // Values by key (strings are valid UTF-8). kNotFound if absent, kInvalidArgument naming key and type if of another
  // type. Integers of every width and sign are read as int64 (range-checked), floats of both widths as double, arrays
  // likewise by element; in an array of integers, bools are 0 and 1.
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<int64_t> GetInt(std::string_view key) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  absl::StatusOr<std::vector<double>> GetFloatArray(std::string_view key) const;
  // Elements of an array of whatever type; the errors of the getters.
  absl::StatusOr<int64_t> ArrayLength(std::string_view key) const;

 private:
  // Where a value stands in the file: decoded on demand, so that opening costs one pass and little memory.
  struct Value {
    uint32_t type = 0;  // of the value; of the elements if `array`
    bool array = false;
    uint64_t count = 1;
    const std::byte* data = nullptr;
  };
  class Reader;  // a position in the file while it is parsed

  GgufFile() = default;
  absl::Status Parse();
  absl::Status ParseKeyValue(Reader& reader);
  absl::Status ParseTensor(Reader& reader, std::vector<uint64_t>* offsets);
  absl::StatusOr<uint64_t> Alignment() const;
  // Sets data of all tensors, which stand at `offsets` behind data_begin.
  absl::Status PlaceTensors(uint64_t data_begin, const std::vector<uint64_t>& offsets);

  absl::Status Error(std::string_view what) const;
  absl::StatusOr<Value> Find(std::string_view key, bool array) const;
  absl::Status WrongType(std::string_view key, const Value& value, std::string_view wanted) const;
  absl::StatusOr<int64_t> DecodeInt(std::string_view key, const Value& value, uint64_t index) const;
  absl::StatusOr<double> DecodeFloat(std::string_view key, const Value& value, uint64_t index) const;

  std::string path_;
  MappedFile file_;
  std::vector<Tensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> tensor_index_;
  absl::flat_hash_map<std::string_view, Value> values_;
};

}  // namespace quire
