#include "model/config_hf.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/architectures.h"
#include "model/config_limits.h"
#include "model/config_windows.h"
#include "model/json.h"
#include "model/printable.h"

namespace quire {
namespace {

using nlohmann::json;
using namespace config_limits;  // NOLINT: constants only

absl::StatusOr<const Architecture*> ReadArchitecture(const JsonFields& fields, const std::string& where) {
  const json* list = fields.Find("architectures");
  std::string model_type;
  if (fields.Has("model_type")) {
    QUIRE_ASSIGN_OR_RETURN(model_type, fields.String("model_type"));
  }
  if (list == nullptr) {
    if (!fields.Has("model_type")) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: neither architectures nor model_type is given", where));
    }
    if (const Architecture* found = FindArchitectureByModelType(model_type)) return found;
    return absl::UnimplementedError(absl::StrFormat("%s: model_type '%s' is not supported; architectures that are: %s",
                                                    where, Printable(model_type), KnownArchitectures()));
  }
  if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
    return fields.Error("architectures", "a list of one name is needed");
  }
  const auto& name = list->front().get_ref<const std::string&>();
  if (const Architecture* found = FindArchitecture(name)) {
    const Architecture* other = FindArchitectureByModelType(model_type);
    if (other == nullptr || other == found) return found;
    return fields.Error("model_type", absl::StrFormat("but architectures names %s", name));
  }
  return absl::UnimplementedError(absl::StrFormat("%s: architecture '%s' is not supported, these are: %s", where,
                                                  Printable(name), KnownArchitectures()));
}

// What changes results and is not built.
absl::Status RefuseUnsupported(const JsonFields& fields, const std::string& where) {
  if (const json* quantization = fields.Find("quantization_config")) {
    const bool named = quantization->is_object() && quantization->contains("quant_method");
    return absl::UnimplementedError(
        absl::StrFormat("%s: quantization_config with quant_method %s is not supported", where,
                        named ? Printable(quantization->at("quant_method").dump()) : "missing"));
  }
  if (fields.Has("hidden_act")) {
    QUIRE_ASSIGN_OR_RETURN(const std::string activation, fields.String("hidden_act"));
    if (activation != "silu") return fields.Error("hidden_act", "only silu is supported");
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "clip_qkv", "num_local_experts"}) {
    if (fields.Has(key)) return fields.Error(key, "this is not supported");
  }
  return absl::OkStatus();
}

DType ReadDType(const JsonFields& fields) {
  const json* type = fields.Find(fields.Has("dtype") ? "dtype" : "torch_dtype");  // in both spellings
  if (type == nullptr) return DType::kF16;
  return *type == "float32" ? DType::kF32 : *type == "bfloat16" ? DType::kBf16 : DType::kF16;
}

absl::Status ReadShapes(const JsonFields& fields, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(config->vocab_size, fields.Int("vocab_size", 1, kMaxVocabSize));
  QUIRE_ASSIGN_OR_RETURN(config->hidden_size, fields.Int("hidden_size", 1, kMaxHiddenSize));
  QUIRE_ASSIGN_OR_RETURN(config->num_layers, fields.Int("num_hidden_layers", 1, kMaxLayers));
  QUIRE_ASSIGN_OR_RETURN(config->num_heads, fields.Int("num_attention_heads", 1, kMaxHeads));
  QUIRE_ASSIGN_OR_RETURN(config->num_kv_heads,
                         fields.IntOr("num_key_value_heads", config->num_heads, 1, config->num_heads));
  if (config->num_heads % config->num_kv_heads != 0) {
    return fields.Error("num_key_value_heads",
                        absl::StrFormat("it must divide num_attention_heads, which is %d", config->num_heads));
  }
  if (fields.Has("head_dim")) {
    QUIRE_ASSIGN_OR_RETURN(config->head_dim, fields.Int("head_dim", 2, kMaxHeadDim));
    if (config->head_dim % 2 != 0) return fields.Error("head_dim", "it must be even");
  } else {
    config->head_dim = config->hidden_size / config->num_heads;
    if (config->hidden_size % config->num_heads != 0 || config->head_dim % 2 != 0 || config->head_dim > kMaxHeadDim) {
      return fields.Error(
          "num_attention_heads",
          absl::StrFormat("hidden_size %d by it must be an even head_dim up to %d", config->hidden_size, kMaxHeadDim));
    }
  }
  QUIRE_ASSIGN_OR_RETURN(config->intermediate_size, fields.Int("intermediate_size", 1, kMaxIntermediateSize));
  QUIRE_ASSIGN_OR_RETURN(config->rms_norm_eps, fields.Float("rms_norm_eps", kMinRmsNormEps, kMaxRmsNormEps));
  QUIRE_ASSIGN_OR_RETURN(config->max_position_embeddings,
                         fields.Int("max_position_embeddings", kMinPositions, kMaxPositions));
  return absl::OkStatus();
}

void AddEosId(int32_t id, ModelConfig* config) {
  std::vector<int32_t>& ids = config->eos_token_ids;
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

absl::Status ReadEosIds(const JsonFields& fields, ModelConfig* config) {
  const json* value = fields.Find("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= config->vocab_size) {
      return fields.Error("eos_token_id", absl::StrFormat("%s in it is no id from 0 to %d", Printable(id.dump()),
                                                          config->vocab_size - 1));
    }
    AddEosId(id.get<int32_t>(), config);
  }
  return absl::OkStatus();
}

// -1 stands for none in both files; an id outside the vocabulary (a padding token nobody added rows for) is none too.
absl::Status ReadOptionalId(const JsonFields& fields, const char* key, int32_t vocab_size, int32_t* id) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t value, fields.IntOr(key, *id, -1, INT32_MAX));
  *id = value < vocab_size ? static_cast<int32_t>(value) : -1;
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const JsonFields& fields, ModelConfig* config) {
  QUIRE_RETURN_IF_ERROR(ReadEosIds(fields, config));
  QUIRE_RETURN_IF_ERROR(ReadOptionalId(fields, "bos_token_id", config->vocab_size, &config->bos_token_id));
  return ReadOptionalId(fields, "pad_token_id", config->vocab_size, &config->pad_token_id);
}

absl::Status ReadGenerationConfig(const std::string& path, ModelConfig* config) {
  absl::StatusOr<json> object = ReadJsonObject(path);
  if (absl::IsNotFound(object.status())) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(object.status());
  const JsonFields fields(*object, path);
  QUIRE_RETURN_IF_ERROR(ReadTokenIds(fields, config));
  QUIRE_ASSIGN_OR_RETURN(config->default_temperature, fields.OptionalFloat("temperature", 0, 1e6));
  QUIRE_ASSIGN_OR_RETURN(config->default_top_p, fields.OptionalFloat("top_p", 0, 1));
  QUIRE_ASSIGN_OR_RETURN(config->default_min_p, fields.OptionalFloat("min_p", 0, 1));
  QUIRE_ASSIGN_OR_RETURN(config->default_repetition_penalty, fields.OptionalFloat("repetition_penalty", 0, 100));
  if (config->default_repetition_penalty == 0.0f) return fields.Error("repetition_penalty", "it must be above 0");
  if (config->default_top_p == 0.0f) return fields.Error("top_p", "it must be above 0");
  if (fields.Has("top_k")) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t top_k, fields.Int("top_k", -1, INT32_MAX));
    config->default_top_k = static_cast<int32_t>(top_k < 0 ? 0 : top_k);
  }
  return absl::OkStatus();
}

// A token of tokenizer_config.json: its text, or an object with it. Empty if neither.
std::string SpellingOf(const json& token) {
  const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  return text.is_string() ? text.get<std::string>() : "";
}

// The id of an added token: from tokenizer_config.json where it lists them, else from tokenizer.json. -1 if it is none.
absl::StatusOr<int64_t> AddedTokenId(const std::string& spelling, const json& config, const std::string& directory) {
  if (const auto known = config.find("added_tokens_decoder"); known != config.end() && known->is_object()) {
    for (const auto& [key, token] : known->items()) {
      int64_t id = -1;
      if (SpellingOf(token) == spelling && absl::SimpleAtoi(key, &id)) return id;
    }
  }
  const absl::StatusOr<json> tokenizer = ReadJsonObject(directory + "/tokenizer.json");
  if (absl::IsNotFound(tokenizer.status())) return -1;
  QUIRE_RETURN_IF_ERROR(tokenizer.status());
  const auto added = tokenizer->find("added_tokens");
  if (added == tokenizer->end() || !added->is_array()) return -1;
  for (const json& token : *added) {
    if (!token.is_object() || SpellingOf(token) != spelling) continue;
    const auto id = token.find("id");
    if (id != token.end() && id->is_number_integer()) return id->get<int64_t>();
  }
  return -1;
}

absl::Status ReadTokenizerEos(const std::string& directory, ModelConfig* config) {
  const absl::StatusOr<json> object = ReadJsonObject(directory + "/tokenizer_config.json");
  if (absl::IsNotFound(object.status())) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(object.status());
  const auto token = object->find("eos_token");
  const std::string spelling = token == object->end() ? "" : SpellingOf(*token);
  if (spelling.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, AddedTokenId(spelling, *object, directory));
  if (id >= 0 && id < config->vocab_size) AddEosId(static_cast<int32_t>(id), config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> LoadHfConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  QUIRE_ASSIGN_OR_RETURN(const json object, ReadJsonObject(path));
  const JsonFields fields(object, path);
  QUIRE_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(fields, path));

  ModelConfig config;
  config.architecture = architecture->name;
  config.model_type = architecture->model_type;
  QUIRE_RETURN_IF_ERROR(ReadShapes(fields, &config));
  config.dtype = ReadDType(fields);
  QUIRE_RETURN_IF_ERROR(RefuseUnsupported(fields, path));
  QUIRE_RETURN_IF_ERROR(ReadHfWindows(fields, *architecture, path, &config));
  QUIRE_ASSIGN_OR_RETURN(config.rope, ParseHfRope(object, config.head_dim, config.max_position_embeddings, path));
  QUIRE_ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.BoolOr("tie_word_embeddings", false));
  QUIRE_ASSIGN_OR_RETURN(const bool attention_bias, fields.BoolOr("attention_bias", false));
  config.attention_bias = attention_bias || architecture->always_qkv_bias;
  config.attention_output_bias = attention_bias && !architecture->always_qkv_bias;
  QUIRE_ASSIGN_OR_RETURN(config.mlp_bias, fields.BoolOr("mlp_bias", false));
  QUIRE_RETURN_IF_ERROR(ReadTokenIds(fields, &config));
  QUIRE_RETURN_IF_ERROR(ReadGenerationConfig(directory + "/generation_config.json", &config));
  QUIRE_RETURN_IF_ERROR(ReadTokenizerEos(directory, &config));
  return config;
}

}  // namespace quire
