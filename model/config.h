#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"

namespace quire {

// How positions turn into rotations (formats.md 6.1; rope types as in Hugging Face's modeling_rope_utils.py).
struct RopeConfig {
  enum class Type { kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongrope };
  Type type = Type::kDefault;
  double theta = 10000;
  int32_t rotary_dim = 0;  // dimensions of a head that rotate, even
  double factor = 1;
  int32_t original_max_position_embeddings = 0;
  double low_freq_factor = 0, high_freq_factor = 0;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  std::optional<double> attention_factor;            // yarn, longrope
  std::optional<double> mscale, mscale_all_dim;      // yarn
  bool truncate = true;                              // yarn
  std::vector<double> short_factor, long_factor;     // longrope
  std::vector<float> freq_divisors;                  // GGUF rope_freqs.weight: each frequency is divided by it
};

// What a decoder is, read from config.json or from GGUF metadata, checked for consistency.
struct ModelConfig {
  std::string architecture;  // Hugging Face's name, "LlamaForCausalLM", also for GGUF files
  std::string model_type;    // "llama"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // divides num_heads
  int32_t head_dim = 0;      // even, at most 256
  int32_t intermediate_size = 0;
  float rms_norm_eps = 0;
  int32_t max_position_embeddings = 0;
  RopeConfig rope;
  // What the files call their numbers (torch_dtype or dtype; general.file_type): kF32, kBf16, or kF16 for all else.
  DType dtype = DType::kF16;
  bool tie_word_embeddings = false;
  bool attention_bias = false;         // of q, k and v
  bool attention_output_bias = false;  // of o
  bool mlp_bias = false;               // of gate, up and down
  // How many keys a query of each layer sees, itself included; 0: all before it. Empty if it is 0 on every layer.
  std::vector<int32_t> layer_windows;

  int32_t window(int32_t layer) const { return layer_windows.empty() ? 0 : layer_windows[layer]; }

  // Whatever any file calls an end of text, each once: config.json, generation_config.json, the eos_token of
  // tokenizer_config.json; in a .gguf file eos and eot.
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;

  // Sampling defaults of generation_config.json, where present.
  std::optional<float> default_temperature, default_top_p, default_min_p, default_repetition_penalty;
  std::optional<int32_t> default_top_k;
};

// Reads the configuration of a model: a directory with config.json (and generation_config.json, if there), or a .gguf
// file. Never allocates by a number in the file. What would change results and is not implemented is refused, not
// ignored. kNotFound if there is no such file, kInvalidArgument naming the file, the key, its value and what is
// allowed, kUnimplemented naming an architecture, rope type, quantization or other feature that is not built.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& path);

}  // namespace quire
