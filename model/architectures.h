#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace quire {

// The tensors a decoder of the Llama family is made of.
enum class Part : uint8_t {
  kEmbedding,      // [V, H]
  kFinalNorm,      // [H]
  kHead,           // [V, H]
  kAttentionNorm,  // [H], one a layer as all below
  kQuery,          // [HQ * D, H]
  kKey,            // [HKV * D, H]
  kValue,          // [HKV * D, H]
  kOutput,         // [H, HQ * D]
  kMlpNorm,        // [H]
  kGate,           // [I, H]
  kUp,             // [I, H]
  kDown,           // [H, I]
};

// Names of the parts in both kinds of files, indexed by Part: without ".weight" or ".bias", `%d` stands for the layer.
struct PartNames {
  const char* hugging_face;
  const char* gguf;
};

// Which layers a `sliding_window` in config.json is for where `layer_types` does not say.
enum class WindowLayers : uint8_t {
  kUnknown,             // the architecture has no windows
  kAll,                 // and 4096 if the key is absent
  kFromMaxWindowLayers  // layers max_window_layers and up, if use_sliding_window is true
};

// What tells one architecture from the next: data, and the block they share is model/llama.h.
struct Architecture {
  std::string_view name;        // in `architectures` of config.json: "LlamaForCausalLM"
  std::string_view model_type;  // in `model_type`: "llama"
  std::string_view gguf_name;   // in GGUF's general.architecture: "llama"; empty: its files go by another's name
  absl::Span<const PartNames> part_names;
  // q, k and v have biases and o has none, whatever config.json says. Else attention_bias says it for all four.
  bool always_qkv_bias;
  // GGUF stores the rows of q and k so that neighbours rotate together (x[2i], x[2i + 1]).
  bool gguf_interleaved_rows;
  WindowLayers window_layers;
};

// Null if unknown.
const Architecture* FindArchitecture(std::string_view name);
const Architecture* FindArchitectureByModelType(std::string_view model_type);
const Architecture* FindArchitectureByGgufName(std::string_view gguf_name);

// "LlamaForCausalLM, Qwen2ForCausalLM": for messages.
std::string KnownArchitectures();

}  // namespace quire
