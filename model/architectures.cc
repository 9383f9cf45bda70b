#include "model/architectures.h"

#include "absl/strings/str_join.h"

namespace quire {
namespace {

constexpr PartNames kLlamaNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.%d.input_layernorm", "blk.%d.attn_norm"},
    {"model.layers.%d.self_attn.q_proj", "blk.%d.attn_q"},
    {"model.layers.%d.self_attn.k_proj", "blk.%d.attn_k"},
    {"model.layers.%d.self_attn.v_proj", "blk.%d.attn_v"},
    {"model.layers.%d.self_attn.o_proj", "blk.%d.attn_output"},
    {"model.layers.%d.post_attention_layernorm", "blk.%d.ffn_norm"},
    {"model.layers.%d.mlp.gate_proj", "blk.%d.ffn_gate"},
    {"model.layers.%d.mlp.up_proj", "blk.%d.ffn_up"},
    {"model.layers.%d.mlp.down_proj", "blk.%d.ffn_down"},
};

constexpr Architecture kArchitectures[] = {
    {.name = "LlamaForCausalLM",
     .model_type = "llama",
     .gguf_name = "llama",
     .part_names = kLlamaNames,
     .always_qkv_bias = false,
     .gguf_interleaved_rows = true,
     .window_layers = WindowLayers::kUnknown},
    {.name = "MistralForCausalLM",
     .model_type = "mistral",
     .gguf_name = "",
     .part_names = kLlamaNames,
     .always_qkv_bias = false,
     .gguf_interleaved_rows = true,
     .window_layers = WindowLayers::kAll},
    {.name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .gguf_name = "qwen2",
     .part_names = kLlamaNames,
     .always_qkv_bias = true,
     .gguf_interleaved_rows = false,
     .window_layers = WindowLayers::kFromMaxWindowLayers},
};

const Architecture* FindBy(std::string_view Architecture::*key, std::string_view value) {
  for (const Architecture& architecture : kArchitectures) {
    if (!value.empty() && architecture.*key == value) return &architecture;
  }
  return nullptr;
}

}  // namespace

const Architecture* FindArchitecture(std::string_view name) { return FindBy(&Architecture::name, name); }
const Architecture* FindArchitectureByModelType(std::string_view model_type) {
  return FindBy(&Architecture::model_type, model_type);
}
const Architecture* FindArchitectureByGgufName(std::string_view gguf_name) {
  return FindBy(&Architecture::gguf_name, gguf_name);
}

std::string KnownArchitectures() {
  return absl::StrJoin(kArchitectures, ", ",
                       [](std::string* out, const Architecture& architecture) { out->append(architecture.name); });
}

}  // namespace quire
