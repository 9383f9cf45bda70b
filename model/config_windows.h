#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/architectures.h"
#include "model/config.h"
#include "model/json.h"

namespace quire {

// Fills config->layer_windows: `window` for the layers marked in `windowed` (num_layers entries). A window of 0, or one
// that no position of the model can leave, is full attention. REQUIRES: num_layers, max_position_embeddings.
void SetWindows(const std::vector<bool>& windowed, int64_t window, ModelConfig* config);

// The same from the keys sliding_window, use_sliding_window, max_window_layers and layer_types of a config.json, with
// the defaults of transformers' configuration classes. Errors name the key.
absl::Status ReadHfWindows(const JsonFields& fields, const Architecture& architecture, const std::string& where,
                           ModelConfig* config);

}  // namespace quire
