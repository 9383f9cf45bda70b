#include "model/layer_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace quire {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

// Layers that a token takes up in blocks of `per_block` layers, padding included, and how many groups that makes.
struct Cost {
  int32_t layers = 0;
  int32_t groups = 0;
};

Cost CostOf(const std::map<int32_t, std::vector<int32_t>>& by_window, int32_t per_block) {
  Cost cost;
  for (const auto& [window, layers] : by_window) {
    cost.groups += CeilDiv(static_cast<int32_t>(layers.size()), per_block);
  }
  cost.layers = cost.groups * per_block;
  return cost;
}

// The fewest layers with padding, then the fewest groups. Blocks as large as the largest group always do.
int32_t LayersPerBlock(const std::map<int32_t, std::vector<int32_t>>& by_window, int32_t largest) {
  int32_t best = largest;
  Cost best_cost = CostOf(by_window, largest);
  for (int32_t per_block = 1; per_block < largest; ++per_block) {
    const Cost cost = CostOf(by_window, per_block);
    if (cost.groups > LayerGroups::kMaxGroups || cost.layers > best_cost.layers) continue;
    if (cost.layers == best_cost.layers && cost.groups >= best_cost.groups) continue;
    best = per_block;
    best_cost = cost;
  }
  return best;
}

}  // namespace

std::vector<int32_t> LayerGroups::windows() const {
  std::vector<int32_t> windows;
  for (const LayerGroup& group : groups) windows.push_back(group.window);
  return windows;
}

LayerGroups GroupLayers(const ModelConfig& config) {
  std::map<int32_t, std::vector<int32_t>> by_window;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) by_window[config.window(layer)].push_back(layer);
  if (by_window.size() <= 1) {
    LayerGroups result = OneGroup(config);
    if (!by_window.empty()) result.groups[0].window = by_window.begin()->first;
    return result;
  }
  int32_t largest = 0;
  for (const auto& [window, layers] : by_window) largest = std::max(largest, static_cast<int32_t>(layers.size()));
  LayerGroups result;
  result.layers_per_block = LayersPerBlock(by_window, largest);
  for (const auto& [window, layers] : by_window) {
    const auto num_layers = static_cast<int32_t>(layers.size());
    for (int32_t begin = 0; begin < num_layers; begin += result.layers_per_block) {
      const int32_t end = std::min(begin + result.layers_per_block, num_layers);
      result.groups.push_back({window, {layers.begin() + begin, layers.begin() + end}});
    }
  }
  return result;
}

LayerGroups OneGroup(const ModelConfig& config) {
  LayerGroup all;
  all.layers.resize(config.num_layers);
  std::iota(all.layers.begin(), all.layers.end(), 0);
  return {.groups = {std::move(all)}, .layers_per_block = config.num_layers};
}

}  // namespace quire
