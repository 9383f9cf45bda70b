#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace quire::testing {

// A folder with the config.json of a model of six layers, every second of which sees 24 keys, for random weights. It
// goes with the object.
class HybridModel {
 public:
  HybridModel() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    std::ofstream(folder_ + "/config.json") << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "sliding_window": 24, "layer_types": ["sliding_attention",
    "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";
  }
  ~HybridModel() { std::filesystem::remove_all(folder_); }
  HybridModel(const HybridModel&) = delete;
  HybridModel& operator=(const HybridModel&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_ = ::testing::TempDir() + "/quire_hybrid_XXXXXX";
};

}  // namespace quire::testing
