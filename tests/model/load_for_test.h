#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "kernels/base/status_macros.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/weight_source.h"

namespace quire::testing {

// Everything a loader does with a model before it packs weights.
inline absl::Status LoadModelFiles(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(path));
  return OpenWeightSource(path, config).status();
}

// The same for a single file as a container.
inline absl::Status LoadContainer(const std::string& path) {
  if (absl::EndsWith(path, ".gguf")) return GgufFile::Open(path).status();
  return SafetensorsFile::Open(path).status();
}

}  // namespace quire::testing
