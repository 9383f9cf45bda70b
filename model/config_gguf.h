#pragma once

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/gguf.h"

namespace quire {

// The configuration that a GGUF file's metadata and tensor names give.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace quire
