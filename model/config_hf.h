#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "nlohmann/json.hpp"

namespace quire {

// The configuration of a Hugging Face directory, in the spelling of transformers 4 and 5.
absl::StatusOr<ModelConfig> LoadHfConfig(const std::string& directory);

// The rope part of config.json: `rope_parameters` (transformers 5) or `rope_theta` with `rope_scaling` (4). All types
// that ComputeRope knows. `where` begins each message.
absl::StatusOr<RopeConfig> ParseHfRope(const nlohmann::json& config, int32_t head_dim, int32_t max_position_embeddings,
                                       const std::string& where);

}  // namespace quire
