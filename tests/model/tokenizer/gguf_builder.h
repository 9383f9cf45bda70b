#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::testing {

// The key-value part of a GGUF file, version 3.
class GgufBuilder {
 public:
  GgufBuilder& String(const std::string& key, const std::string& value) {
    Key(key, 8);
    return Text(value);
  }
  GgufBuilder& Strings(const std::string& key, const std::vector<std::string>& values) {
    Array(key, 8, values.size());
    for (const std::string& value : values) Text(value);
    return *this;
  }
  GgufBuilder& Floats(const std::string& key, const std::vector<float>& values) {
    Array(key, 6, values.size());
    for (const float value : values) Number(value);
    return *this;
  }
  GgufBuilder& Ints(const std::string& key, const std::vector<int32_t>& values) {
    Array(key, 5, values.size());
    for (const int32_t value : values) Number(value);
    return *this;
  }
  GgufBuilder& Uint(const std::string& key, uint32_t value) {
    Key(key, 4);
    return Number(value);
  }
  GgufBuilder& Bool(const std::string& key, bool value) {
    Key(key, 7);
    return Number(static_cast<uint8_t>(value));
  }
  std::string File() const {
    GgufBuilder head;
    head.Number(uint32_t{0x46554747}).Number(uint32_t{3}).Number(uint64_t{0}).Number(num_keys_);
    return head.bytes_ + bytes_;
  }

 private:
  template <typename T>
  GgufBuilder& Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBuilder& Text(const std::string& text) {
    Number(static_cast<uint64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  void Key(const std::string& key, uint32_t type) {
    Text(key).Number(type);
    ++num_keys_;
  }
  void Array(const std::string& key, uint32_t type, uint64_t count) {
    Key(key, 9);
    Number(type).Number(count);
  }

  uint64_t num_keys_ = 0;
  std::string bytes_;
};

// A tokenizer.json of byte-level BPE (`pre` names its stages) or of SentencePiece's kind (`pre` empty) as the GGUF file
// that a converter makes of it. Ids without a token become unused tokens.
std::string GgufOfTokenizerJson(const std::string& path, const std::string& pre);

}  // namespace quire::testing
