#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace quire {

// Layers that share block tables: a KV block of a group holds the tokens of all its layers.
struct LayerGroup {
  int32_t window = 0;           // keys that a query sees on these layers; 0: all
  std::vector<int32_t> layers;  // ascending
};

// How the layers of a model share the blocks of one pool. All blocks are of one size, that of `layers_per_block`
// layers, and any block can serve any group: what one group gives up another can use, so one budget is enough.
//
// Layers of equal window form a group, full attention first. Where their numbers differ much (five sliding layers to
// one full), large groups are cut into several of nearly equal size instead of padding the blocks of small ones, as far
// as kMaxGroups allows.
struct LayerGroups {
  static constexpr int32_t kMaxGroups = 8;

  std::vector<LayerGroup> groups;  // at least one; every layer in exactly one
  int32_t layers_per_block = 0;

  int32_t size() const { return static_cast<int32_t>(groups.size()); }
  std::vector<int32_t> windows() const;  // by group
};

LayerGroups GroupLayers(const ModelConfig& config);

// One group without a window: what a scheduler needs that does not know groups. Layers still attend within theirs.
LayerGroups OneGroup(const ModelConfig& config);

}  // namespace quire
