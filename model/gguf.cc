#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/gguf_types.h"
#include "model/printable.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

// GGUF's value types.
enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kNumValueTypes };

constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;
// The least a key with its value, and a tensor's entry, take in the file.
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

// Bytes of a value of a type of fixed size; 0 for strings and arrays.
uint64_t FixedSize(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

std::string_view TypeName(uint32_t type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return type < kNumValueTypes ? kNames[type] : "?";
}

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

}  // namespace

class GgufFile::Reader {
 public:
  explicit Reader(absl::Span<const std::byte> bytes) : begin_(bytes.data()), bytes_(bytes) {}

  uint64_t left() const { return bytes_.size(); }
  uint64_t position() const { return static_cast<uint64_t>(bytes_.data() - begin_); }
  const std::byte* data() const { return bytes_.data(); }

  template <typename T>
  bool Read(T* value) {
    if (bytes_.size() < sizeof(T)) return false;
    *value = Load<T>(bytes_.data());
    bytes_.remove_prefix(sizeof(T));
    return true;
  }

  // What is wrong with the string here, empty if nothing; *text is it.
  std::string ReadString(std::string_view* text, uint64_t max_bytes = std::numeric_limits<uint64_t>::max()) {
    uint64_t length;
    if (!Read(&length)) return "truncated before the length of a string";
    if (length > left()) return absl::StrFormat("truncated: string length %d, but %d bytes are left", length, left());
    if (length > max_bytes) return absl::StrFormat("string length %d, at most %d are allowed", length, max_bytes);
    *text = {reinterpret_cast<const char*>(bytes_.data()), static_cast<size_t>(length)};
    if (!utf8::IsValid(*text)) return "string is not valid UTF-8";
    bytes_.remove_prefix(length);
    return {};
  }

  // Passes over a value of `type` after checking it; what is wrong with it, empty if nothing.
  std::string SkipValue(uint32_t type) {
    std::string_view text;
    uint32_t element_type;
    uint64_t count;
    if (type == kString) return ReadString(&text);
    if (type == kArray) return SkipArray(0, &element_type, &count, nullptr);
    return SkipFixed(type, 1);
  }

  // The same for an array; sets the type and number of its elements and where they begin.
  std::string SkipArray(int depth, uint32_t* element_type, uint64_t* count, const std::byte** elements) {
    if (depth == kMaxArrayDepth) return absl::StrFormat("arrays nested deeper than %d", kMaxArrayDepth);
    if (!Read(element_type) || !Read(count)) return "truncated inside an array";
    if (*element_type >= kNumValueTypes) return absl::StrFormat("unknown array element type %d", *element_type);
    if (elements != nullptr) *elements = bytes_.data();
    if (FixedSize(*element_type) > 0) return SkipFixed(*element_type, *count);
    const uint64_t min_bytes = *element_type == kString ? 8 : 12;
    if (*count > left() / min_bytes) {
      return absl::StrFormat("truncated: array length %d, but %d bytes are left", *count, left());
    }
    for (uint64_t i = 0; i < *count; ++i) {
      std::string_view text;
      uint32_t inner_type;
      uint64_t inner_count;
      std::string problem =
          *element_type == kString ? ReadString(&text) : SkipArray(depth + 1, &inner_type, &inner_count, nullptr);
      if (!problem.empty()) return problem;
    }
    return {};
  }

 private:
  std::string SkipFixed(uint32_t type, uint64_t count) {
    const uint64_t size = FixedSize(type);
    if (count > left() / size) {
      return absl::StrFormat("truncated: length %d of %s, but %d bytes are left", count, TypeName(type), left());
    }
    if (type == kBool) {
      for (uint64_t i = 0; i < count; ++i) {
        if (bytes_[i] > std::byte{1}) return "a bool is neither 0 nor 1";
      }
    }
    bytes_.remove_prefix(count * size);
    return {};
  }

  const std::byte* begin_;
  absl::Span<const std::byte> bytes_;
};

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  QUIRE_ASSIGN_OR_RETURN(file->file_, MappedFile::Open(path));
  QUIRE_RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status GgufFile::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", path_, what));
}

absl::Status GgufFile::Parse() {
  Reader reader(file_.bytes());
  if (reader.left() == 0) return Error("the file is empty");
  std::array<char, 4> magic;
  uint32_t version;
  if (!reader.Read(&magic)) return Error("truncated: too short for a GGUF file");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    return Error("no GGUF file: it does not begin with the magic bytes GGUF");
  if (!reader.Read(&version)) return Error("truncated inside the header");
  if ((version & 0xFFFF) == 0)
    return Error(absl::StrFormat("version %#x: big-endian files are not supported", version));
  if (version != 2 && version != 3) return Error(absl::StrFormat("GGUF version %d, supported are 2 and 3", version));

  uint64_t num_tensors, num_values;
  if (!reader.Read(&num_tensors) || !reader.Read(&num_values)) return Error("truncated inside the header");
  if (num_tensors > reader.left() / kMinTensorBytes) {
    return Error(absl::StrFormat("tensor count %d is too many for a file of %d bytes", num_tensors, reader.left()));
  }
  if (num_values > reader.left() / kMinKeyValueBytes) {
    return Error(absl::StrFormat("key count %d is too many for a file of %d bytes", num_values, reader.left()));
  }
  for (uint64_t i = 0; i < num_values; ++i) QUIRE_RETURN_IF_ERROR(ParseKeyValue(reader));
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < num_tensors; ++i) QUIRE_RETURN_IF_ERROR(ParseTensor(reader, &offsets));

  QUIRE_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  return PlaceTensors((reader.position() + alignment - 1) / alignment * alignment, offsets);
}

absl::Status GgufFile::ParseKeyValue(Reader& reader) {
  std::string_view key;
  if (std::string problem = reader.ReadString(&key, kMaxKeyBytes); !problem.empty()) {
    return Error(absl::StrFormat("key %d: %s", values_.size(), problem));
  }
  auto key_error = [&](std::string_view what) { return Error(absl::StrFormat("key '%s': %s", Printable(key), what)); };
  if (key.empty()) return key_error("empty");
  Value value;
  if (!reader.Read(&value.type)) return key_error("truncated before its type");
  if (value.type >= kNumValueTypes) return key_error(absl::StrFormat("unknown value type %d", value.type));
  value.data = reader.data();
  value.array = value.type == kArray;
  std::string problem =
      value.array ? reader.SkipArray(0, &value.type, &value.count, &value.data) : reader.SkipValue(value.type);
  if (!problem.empty()) return key_error(problem);
  if (!values_.try_emplace(key, value).second) return key_error("duplicate");
  return absl::OkStatus();
}

absl::Status GgufFile::ParseTensor(Reader& reader, std::vector<uint64_t>* offsets) {
  Tensor tensor;
  if (std::string problem = reader.ReadString(&tensor.name, kMaxTensorNameBytes); !problem.empty()) {
    return Error(absl::StrFormat("name of tensor %d: %s", tensors_.size(), problem));
  }
  auto tensor_error = [&](std::string_view what) {
    return Error(absl::StrFormat("tensor '%s': %s", Printable(tensor.name), what));
  };
  uint32_t num_dims;
  if (!reader.Read(&num_dims)) return tensor_error("truncated");
  if (num_dims > 4) return tensor_error(absl::StrFormat("%d dimensions, at most 4 are allowed", num_dims));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t dim;
    if (!reader.Read(&dim)) return tensor_error("truncated");
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, dim, &elements)) {
      return tensor_error("overflow: its dimensions are beyond 64 bits");
    }
    tensor.dims.push_back(static_cast<int64_t>(dim));
  }
  uint64_t offset;
  if (!reader.Read(&tensor.type) || !reader.Read(&offset)) return tensor_error("truncated");
  const GgufTypeInfo* type = FindGgufType(tensor.type);
  if (type == nullptr) return tensor_error(absl::StrFormat("unknown tensor type %d", tensor.type));
  const int64_t row = num_dims > 0 ? tensor.dims[0] : 1;
  if (row % type->block_length != 0) {
    return tensor_error(absl::StrFormat("a row of %d values is not a multiple of the block length %d of %s", row,
                                        type->block_length, type->name));
  }
  uint64_t bytes;
  if (__builtin_mul_overflow(elements / type->block_length, static_cast<uint64_t>(type->block_bytes), &bytes) ||
      bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return tensor_error("overflow: its size is beyond 64 bits");
  }
  tensor.bytes = static_cast<int64_t>(bytes);
  if (!tensor_index_.try_emplace(tensor.name, tensors_.size()).second) return tensor_error("duplicate");
  tensors_.push_back(std::move(tensor));
  offsets->push_back(offset);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> GgufFile::Alignment() const {
  constexpr std::string_view kKey = "general.alignment";
  if (!Has(kKey)) return kDefaultAlignment;
  QUIRE_ASSIGN_OR_RETURN(const int64_t alignment, GetInt(kKey));
  if (alignment < 8 || alignment > (int64_t{1} << 30) || (alignment & (alignment - 1)) != 0) {
    return Error(absl::StrFormat("%s is %d, allowed are powers of two from 8 to 2^30", kKey, alignment));
  }
  return static_cast<uint64_t>(alignment);
}

absl::Status GgufFile::PlaceTensors(uint64_t data_begin, const std::vector<uint64_t>& offsets) {
  if (tensors_.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  const uint64_t file_bytes = file_.bytes().size();
  const uint64_t data_bytes = data_begin < file_bytes ? file_bytes - data_begin : 0;
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(offsets[a], tensors_[a].bytes) < std::pair(offsets[b], tensors_[b].bytes);
  });
  uint64_t last_end = 0;
  for (size_t index : order) {
    Tensor& tensor = tensors_[index];
    const uint64_t offset = offsets[index], bytes = static_cast<uint64_t>(tensor.bytes);
    auto tensor_error = [&](std::string_view what) {
      return Error(absl::StrFormat("tensor '%s' at offset %d: %s", Printable(tensor.name), offset, what));
    };
    if (offset % alignment != 0)
      return tensor_error(absl::StrFormat("the offset is not aligned to %d bytes", alignment));
    if (offset > data_bytes || bytes > data_bytes - offset) {
      return tensor_error(
          absl::StrFormat("truncated: its %d bytes end beyond the file's %d bytes of data", bytes, data_bytes));
    }
    if (offset < last_end) return tensor_error("it overlaps the tensor before it");
    last_end = offset + bytes;
    tensor.data = file_.bytes().data() + data_begin + offset;
  }
  return absl::OkStatus();
}

const GgufFile::Tensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

bool GgufFile::Has(std::string_view key) const { return values_.contains(key); }

absl::StatusOr<GgufFile::Value> GgufFile::Find(std::string_view key, bool array) const {
  const auto found = values_.find(key);
  if (found == values_.end())
    return absl::NotFoundError(absl::StrCat(path_, ": key '", Printable(key), "' is missing"));
  if (found->second.array != array) return WrongType(key, found->second, array ? "an array" : "a single value");
  return found->second;
}

absl::Status GgufFile::WrongType(std::string_view key, const Value& value, std::string_view wanted) const {
  return Error(absl::StrFormat("key '%s' has the type %s%s, expected is %s", Printable(key),
                               value.array ? "array of " : "", TypeName(value.type), wanted));
}

absl::StatusOr<int64_t> GgufFile::DecodeInt(std::string_view key, const Value& value, uint64_t index) const {
  const std::byte* data = value.data + index * FixedSize(value.type);
  switch (value.type) {
    case kU8:
      return Load<uint8_t>(data);
    case kI8:
      return Load<int8_t>(data);
    case kU16:
      return Load<uint16_t>(data);
    case kI16:
      return Load<int16_t>(data);
    case kU32:
      return Load<uint32_t>(data);
    case kI32:
      return Load<int32_t>(data);
    case kI64:
      return Load<int64_t>(data);
    case kU64: {
      const auto number = Load<uint64_t>(data);
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Error(absl::StrFormat("key '%s' is %d, at most 2^63 - 1 is allowed", Printable(key), number));
      }
      return static_cast<int64_t>(number);
    }
    default:
      return WrongType(key, value, "an integer");
  }
}

absl::StatusOr<double> GgufFile::DecodeFloat(std::string_view key, const Value& value, uint64_t index) const {
  const std::byte* data = value.data + index * FixedSize(value.type);
  if (value.type == kF32) return Load<float>(data);
  if (value.type == kF64) return Load<double>(data);
  return WrongType(key, value, "a float");
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/false));
  if (value.type != kString) return WrongType(key, value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value.data + 8), Load<uint64_t>(value.data));
}

absl::StatusOr<int64_t> GgufFile::GetInt(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/false));
  return DecodeInt(key, value, 0);
}

absl::StatusOr<double> GgufFile::GetFloat(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/false));
  return DecodeFloat(key, value, 0);
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/false));
  if (value.type != kBool) return WrongType(key, value, "a bool");
  return *value.data != std::byte{0};
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::GetStringArray(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/true));
  if (value.type != kString) return WrongType(key, value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value.count);
  const std::byte* data = value.data;
  for (uint64_t i = 0; i < value.count; ++i) {
    const auto length = Load<uint64_t>(data);
    strings.emplace_back(reinterpret_cast<const char*>(data + 8), length);
    data += 8 + length;
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::GetIntArray(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/true));
  std::vector<int64_t> numbers;
  if (value.type == kBool) {
    std::transform(value.data, value.data + value.count, std::back_inserter(numbers),
                   [](std::byte flag) { return static_cast<int64_t>(flag != std::byte{0}); });
    return numbers;
  }
  for (uint64_t i = 0; i < value.count; ++i) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t number, DecodeInt(key, value, i));
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> GgufFile::GetFloatArray(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/true));
  std::vector<double> numbers;
  for (uint64_t i = 0; i < value.count; ++i) {
    QUIRE_ASSIGN_OR_RETURN(const double number, DecodeFloat(key, value, i));
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<int64_t> GgufFile::ArrayLength(std::string_view key) const {
  QUIRE_ASSIGN_OR_RETURN(const Value value, Find(key, /*array=*/true));
  return static_cast<int64_t>(value.count);
}

}  // namespace quire
