#include "tests/fuzz/parsers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "kernels/base/check.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/rope.h"
#include "model/safetensors.h"
#include "model/tokenizer/loaders.h"

namespace quire::testing {
namespace {

// Parsers read files: one, rewritten for every input, in a folder that goes with the program.
std::string WriteInput(const char* name, const uint8_t* data, size_t size) {
  struct Folder {
    Folder() { QUIRE_CHECK(mkdtemp(path) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    char path[32] = "/tmp/quire_fuzz_XXXXXX";
  };
  static const Folder folder;
  const std::string path = std::string(folder.path) + "/" + name;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return path;
}

// Reads first and last byte, so that a view beyond the file does not go unseen.
void Touch(const std::byte* data, int64_t bytes) {
  static volatile std::byte sink;
  if (bytes > 0) sink = data[0] ^ data[bytes - 1];
  (void)sink;
}

void CheckConfig(const std::string& path) {
  const auto config = LoadModelConfig(path);
  if (!config.ok()) return;
  const RopeFrequencies rope = ComputeRope(config->rope, config->max_position_embeddings, 0);
  QUIRE_CHECK(config->num_heads % config->num_kv_heads == 0);
  QUIRE_CHECK(rope.inv_freq.size() * 2 == static_cast<size_t>(config->rope.rotary_dim));
}

// What is exported as a tokenizer.json is one.
void CheckTokenizer(const GgufFile& file) {
  const auto tokenizer = LoadTokenizerGguf(file);
  if (!tokenizer.ok()) return;
  (void)(*tokenizer)->Encode("Hello <s>  1234, e\xCC\x81!\n", /*add_special_tokens=*/true).ok();
  const auto json = TokenizerJsonOfGguf(file);
  if (json.ok()) QUIRE_CHECK(LoadTokenizerJson(*json).ok());
}

}  // namespace

void ParseAsGguf(const uint8_t* data, size_t size) {
  const std::string path = WriteInput("input.gguf", data, size);
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return;
  for (const GgufFile::Tensor& tensor : (*file)->tensors()) Touch(tensor.data, tensor.bytes);
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "x.y"}) {
    (void)(*file)->GetStringArray(key).ok();
    (void)(*file)->GetIntArray(key).ok();
    (void)(*file)->GetFloatArray(key).ok();
    (void)(*file)->GetString(key).ok();
    (void)(*file)->GetInt(key).ok();
  }
  CheckConfig(path);
  CheckTokenizer(**file);
}

void ParseAsSafetensors(const uint8_t* data, size_t size) {
  const auto file = SafetensorsFile::Open(WriteInput("input.safetensors", data, size));
  if (!file.ok()) return;
  for (const SafetensorsFile::Tensor& tensor : (*file)->tensors()) {
    Touch(tensor.data, tensor.bytes);
    QUIRE_CHECK((*file)->FindTensor(tensor.name) == &tensor);
  }
}

void ParseAsConfig(const uint8_t* data, size_t size) {
  CheckConfig(std::filesystem::path(WriteInput("config.json", data, size)).parent_path());
}

}  // namespace quire::testing
