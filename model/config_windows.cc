#include "model/config_windows.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/printable.h"

namespace quire {
namespace {

// What transformers takes for absent keys.
constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kDefaultMaxWindowLayers = 28;

// The layers that layer_types marks as sliding; `window` is the model's, 0 if it has none.
absl::StatusOr<std::vector<bool>> ReadLayerTypes(const JsonFields& fields, int64_t window, int32_t num_layers,
                                                 const std::string& where) {
  const nlohmann::json& types = *fields.Find("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    return fields.Error("layer_types", absl::StrFormat("a list of %d entries, one a layer, is needed", num_layers));
  }
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    const std::string kind = type.is_string() ? type.get<std::string>() : "";
    windowed.push_back(kind == "sliding_attention");
    if (!windowed.back() && kind != "full_attention") {
      return absl::UnimplementedError(
          absl::StrFormat("%s: layer_types holds %s, full_attention and sliding_attention are supported", where,
                          Printable(type.dump())));
    }
    if (windowed.back() && window == 0) {
      return fields.Error("layer_types", "sliding_attention needs a sliding_window that is in use");
    }
  }
  return windowed;
}

}  // namespace

void SetWindows(const std::vector<bool>& windowed, int64_t window, ModelConfig* config) {
  config->layer_windows.clear();
  const bool narrow = window > 0 && window < config->max_position_embeddings;
  if (!narrow || std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  for (const bool has_window : windowed) {
    config->layer_windows.push_back(has_window ? static_cast<int32_t>(window) : 0);
  }
}

absl::Status ReadHfWindows(const JsonFields& fields, const Architecture& architecture, const std::string& where,
                           ModelConfig* config) {
  const WindowLayers rule = architecture.window_layers;
  const bool is_null = fields.IsNull("sliding_window");
  const int64_t absent = rule == WindowLayers::kUnknown || is_null ? 0 : kDefaultWindow;
  int64_t window = absent;
  if (fields.Has("sliding_window")) {
    QUIRE_ASSIGN_OR_RETURN(window, fields.Int("sliding_window", 1, INT64_MAX));
  }
  const bool by_default = rule != WindowLayers::kFromMaxWindowLayers;
  QUIRE_ASSIGN_OR_RETURN(const bool in_use, fields.BoolOr("use_sliding_window", by_default));
  if (!in_use) window = 0;

  std::vector<bool> windowed(config->num_layers, true);
  if (fields.Has("layer_types")) {
    QUIRE_ASSIGN_OR_RETURN(windowed, ReadLayerTypes(fields, window, config->num_layers, where));
  } else if (rule == WindowLayers::kUnknown && window > 0 && window < config->max_position_embeddings) {
    return fields.Error(
        "sliding_window",
        absl::StrFormat("%s does not say which layers that is for: layer_types is needed", architecture.name));
  } else if (rule == WindowLayers::kFromMaxWindowLayers) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t full,
                           fields.IntOr("max_window_layers", kDefaultMaxWindowLayers, 0, INT32_MAX));
    std::fill_n(windowed.begin(), std::min<int64_t>(full, config->num_layers), false);
  }
  SetWindows(windowed, window, config);
  return absl::OkStatus();
}

}  // namespace quire
