#include "model/config.h"

#include <filesystem>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/config_gguf.h"
#include "model/config_hf.h"
#include "model/gguf.h"

namespace quire {
namespace {

// The frequencies of these change with the length of a sequence; keys already in the cache would have been rotated by
// the old ones.
absl::Status RefuseChangingRope(const std::string& path, const RopeConfig& rope) {
  using Type = RopeConfig::Type;
  if (rope.type != Type::kDynamic && rope.type != Type::kLongrope) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrFormat("%s: rope type '%s' is not supported: default, linear, yarn, llama3 are", path,
                      rope.type == Type::kDynamic ? "dynamic" : "longrope"));
}

}  // namespace

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    QUIRE_ASSIGN_OR_RETURN(ModelConfig config, LoadHfConfig(path));
    QUIRE_RETURN_IF_ERROR(RefuseChangingRope(path, config.rope));
    return config;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  absl::StatusOr<ModelConfig> config = ReadGgufConfig(*file);
  // kNotFound is for files; a missing key is a fault of this one.
  if (absl::IsNotFound(config.status())) return absl::InvalidArgumentError(config.status().message());
  return config;
}

}  // namespace quire
