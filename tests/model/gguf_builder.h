#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/base/check.h"

namespace quire::testing {

// The path of a new file in a folder of its own, which goes when the test program ends.
inline std::string WriteTemporaryFile(const std::string& name, const std::string& bytes) {
  struct Folder {
    Folder() { QUIRE_CHECK(mkdtemp(path) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    char path[32] = "/tmp/quire_test_XXXXXX";
  };
  static const Folder root;
  static int count = 0;
  const std::filesystem::path folder = std::filesystem::path(root.path) / std::to_string(count++);
  std::filesystem::create_directory(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

// Writes GGUF version 3, with F32 tensors of zeros.
class GgufBuilder {
 public:
  template <typename T>
  static std::string Raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string Text(const std::string& text) { return Raw<uint64_t>(text.size()) + text; }

  // `value` is what follows the type.
  GgufBuilder& Add(const std::string& key, uint32_t type, const std::string& value) {
    values_ += Text(key) + Raw(type) + value;
    ++num_values_;
    return *this;
  }
  GgufBuilder& U32(const std::string& key, uint32_t value) { return Add(key, 4, Raw(value)); }
  GgufBuilder& F32(const std::string& key, float value) { return Add(key, 6, Raw(value)); }
  GgufBuilder& String(const std::string& key, const std::string& value) { return Add(key, 8, Text(value)); }

  GgufBuilder& Tensor(const std::string& name, const std::vector<uint64_t>& dims) {
    uint64_t elements = 1;
    infos_ += Text(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (uint64_t dim : dims) infos_ += Raw(dim), elements *= dim;
    infos_ += Raw(uint32_t{0}) + Raw(static_cast<uint64_t>(data_bytes_));
    data_bytes_ += (elements * 4 + 31) / 32 * 32;
    ++num_tensors_;
    return *this;
  }

  std::string Bytes() const {
    std::string bytes = "GGUF" + Raw(uint32_t{3}) + Raw(num_tensors_) + Raw(num_values_) + values_ + infos_;
    bytes.resize((bytes.size() + 31) / 32 * 32 + data_bytes_, '\0');
    return bytes;
  }

 private:
  std::string values_, infos_;
  uint64_t num_values_ = 0, num_tensors_ = 0, data_bytes_ = 0;
};

}  // namespace quire::testing
