#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/json.h"
#include "model/printable.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kMaxRank = 32;

struct DTypeBits {
  std::string_view name;
  uint64_t bits;
};
constexpr DTypeBits kDTypes[] = {{"BOOL", 8},        {"U8", 8},         {"I8", 8},      {"U16", 16},    {"I16", 16},
                                 {"U32", 32},        {"I32", 32},       {"U64", 64},    {"I64", 64},    {"F16", 16},
                                 {"BF16", 16},       {"F32", 32},       {"F64", 64},    {"C64", 64},    {"F8_E4M3", 8},
                                 {"F8_E5M2", 8},     {"F8_E8M0", 8},    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
                                 {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

const DTypeBits* FindDType(std::string_view name) {
  for (const DTypeBits& dtype : kDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

// Reads what the header says of one tensor; the problem, empty if there is none.
std::string ReadEntry(const json& entry, SafetensorsFile::Tensor* tensor, uint64_t* begin) {
  if (!entry.is_object()) return "its entry is not a JSON object";
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return absl::StrFormat("unknown key '%s' in its entry", Printable(key));
    }
  }
  const auto dtype_name = entry.find("dtype");
  if (dtype_name == entry.end() || !dtype_name->is_string()) return "dtype is missing or no string";
  const DTypeBits* dtype = FindDType(dtype_name->get_ref<const std::string&>());
  if (dtype == nullptr) {
    return absl::StrFormat("unknown dtype '%s'", Printable(dtype_name->get_ref<const std::string&>()));
  }
  tensor->dtype = dtype->name;

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) return "shape is missing or no array";
  if (shape->size() > static_cast<size_t>(kMaxRank)) {
    return absl::StrFormat("shape has %d dimensions, at most %d are allowed", shape->size(), kMaxRank);
  }
  uint64_t bits = dtype->bits;
  for (const json& dim : *shape) {
    if (!dim.is_number_unsigned()) return "shape holds something that is no count";
    const auto size = dim.get<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bits, size, &bits)) {
      return "overflow: the size of its shape is beyond 64 bits";
    }
    tensor->shape.push_back(static_cast<int64_t>(size));
  }
  if (bits % 8 != 0) return absl::StrFormat("its %d bits do not end at a byte", bits);

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array()) return "data_offsets are missing or no array";
  if (offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return "data_offsets are not two offsets";
  }
  *begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (end < *begin) return absl::StrFormat("data_offsets end at %d, before they begin at %d", end, *begin);
  if (end - *begin != bits / 8) {
    return absl::StrFormat("data_offsets give %d bytes, its shape and dtype %d", end - *begin, bits / 8);
  }
  tensor->bytes = static_cast<int64_t>(bits / 8);
  return {};
}

// Whether a name stays in its folder and on its line of a message.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name[0] != '.' && std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  QUIRE_ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  QUIRE_RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status SafetensorsFile::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path_, what));
}

absl::Status SafetensorsFile::Parse() {
  const absl::Span<const std::byte> bytes = file_.bytes();
  uint64_t header_bytes;
  if (bytes.size() < sizeof(header_bytes)) {
    return Error(absl::StrFormat("too short: %d bytes cannot hold the header's length", bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return Error(
        absl::StrFormat("header length %d is too large, at most %d is allowed", header_bytes, kMaxHeaderBytes));
  }
  const uint64_t rest = bytes.size() - sizeof(header_bytes);
  if (header_bytes > rest) {
    return Error(absl::StrFormat("header length %d, but only %d bytes follow", header_bytes, rest));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof(header_bytes), header_bytes);
  if (header.empty() || header[0] != '{') return Error("the header does not start with {");
  QUIRE_ASSIGN_OR_RETURN(const json entries, ParseJson(header, path_ + ": header"));

  std::vector<std::pair<uint64_t, Tensor>> placed;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") {
      const bool strings = entry.is_object() &&
                           std::all_of(entry.begin(), entry.end(), [](const json& value) { return value.is_string(); });
      if (!strings) return Error("__metadata__ is not an object of strings");
      continue;
    }
    Tensor tensor;
    tensor.name = name;
    uint64_t begin = 0;
    if (std::string problem = ReadEntry(entry, &tensor, &begin); !problem.empty()) {
      return Error(absl::StrFormat("tensor '%s': %s", Printable(name), problem));
    }
    placed.emplace_back(begin, std::move(tensor));
  }
  std::sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.bytes) < std::pair(b.first, b.second.bytes);
  });
  std::vector<uint64_t> begins;
  for (auto& [begin, tensor] : placed) {
    begins.push_back(begin);
    tensors_.push_back(std::move(tensor));
  }
  QUIRE_RETURN_IF_ERROR(CheckCoverage(rest - header_bytes, begins));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].data = bytes.data() + sizeof(header_bytes) + header_bytes + begins[i];
    tensor_index_.emplace(tensors_[i].name, i);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::CheckCoverage(uint64_t data_bytes, absl::Span<const uint64_t> begins) const {
  uint64_t end = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto tensor_error = [&](std::string_view what) {
      return Error(absl::StrFormat("tensor '%s' at offset %d: %s", Printable(tensors_[i].name), begins[i], what));
    };
    if (begins[i] < end) return tensor_error("it overlaps the tensor before it");
    if (begins[i] > end) return tensor_error(absl::StrFormat("a hole of %d bytes before it", begins[i] - end));
    if (static_cast<uint64_t>(tensors_[i].bytes) > data_bytes - end) {
      return tensor_error(absl::StrFormat("truncated: its %d bytes end beyond the file's %d bytes of data",
                                          tensors_[i].bytes, data_bytes));
    }
    end += static_cast<uint64_t>(tensors_[i].bytes);
  }
  if (end != data_bytes) return Error(absl::StrFormat("%d trailing bytes belong to no tensor", data_bytes - end));
  return absl::OkStatus();
}

const SafetensorsFile::Tensor* SafetensorsFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<std::unique_ptr<SafetensorsDirectory>> SafetensorsDirectory::Open(const std::string& directory) {
  std::unique_ptr<SafetensorsDirectory> result(new SafetensorsDirectory);
  result->path_ = directory;
  const std::string single = directory + "/model.safetensors", index = single + ".index.json";
  std::error_code error;
  if (!std::filesystem::exists(single, error) && std::filesystem::exists(index, error)) {
    QUIRE_RETURN_IF_ERROR(result->OpenShards(index));
    return result;
  }
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(single));
  for (const SafetensorsFile::Tensor& tensor : file->tensors()) result->tensors_.emplace(tensor.name, &tensor);
  result->files_.push_back(std::move(file));
  return result;
}

absl::Status SafetensorsDirectory::OpenShards(const std::string& index_path) {
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s", index_path, what));
  };
  QUIRE_ASSIGN_OR_RETURN(const json index, ReadJsonObject(index_path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) return error("weight_map is missing or no object");
  absl::flat_hash_map<std::string, SafetensorsFile*> shards;
  for (const auto& [name, shard] : weight_map->items()) {
    if (!shard.is_string()) return error(absl::StrFormat("weight_map gives no file name for '%s'", Printable(name)));
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (!IsPlainFileName(shard_name)) {
      return error(
          absl::StrFormat("shard name '%s' of '%s' is not a plain file name", Printable(shard_name), Printable(name)));
    }
    SafetensorsFile*& file = shards[shard_name];
    if (file == nullptr) {
      QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> opened, SafetensorsFile::Open(path_ + "/" + shard_name));
      file = opened.get();
      files_.push_back(std::move(opened));
    }
    const SafetensorsFile::Tensor* tensor = file->FindTensor(name);
    if (tensor == nullptr) {
      return error(
          absl::StrFormat("weight_map says that '%s' is in %s, but it is not", Printable(name), Printable(shard_name)));
    }
    tensors_.emplace(tensor->name, tensor);
  }
  return absl::OkStatus();
}

const SafetensorsFile::Tensor* SafetensorsDirectory::FindTensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

}  // namespace quire
