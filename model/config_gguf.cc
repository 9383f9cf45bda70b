#include "model/config_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/architectures.h"
#include "model/config_limits.h"
#include "model/config_windows.h"
#include "model/printable.h"

namespace quire {
namespace {

using namespace config_limits;  // NOLINT: constants only

// Reads the keys below "<architecture>." with ranges.
class Metadata {
 public:
  Metadata(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) { prefix_ += '.'; }

  std::string Key(std::string_view name) const { return absl::StrFormat("%s%s", prefix_, name); }
  bool Has(std::string_view name) const { return file_.Has(Key(name)); }

  absl::Status Error(std::string_view name, std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %s %s", file_.path(), Key(name), what));
  }

  absl::StatusOr<int64_t> Int(std::string_view name, int64_t min, int64_t max) const {
    QUIRE_ASSIGN_OR_RETURN(const int64_t value, file_.GetInt(Key(name)));
    return InRange(name, value, min, max);
  }

  // A number that may be given once, or once a layer if it is the same in all.
  absl::StatusOr<int64_t> IntOfAllLayers(std::string_view name, int32_t num_layers, int64_t min, int64_t max) const {
    const absl::StatusOr<int64_t> length = file_.ArrayLength(Key(name));
    if (!length.ok()) return Int(name, min, max);
    if (*length != num_layers) {
      return Error(name,
                   absl::StrFormat("has %d entries for %d layers: one or one a layer is needed", *length, num_layers));
    }
    QUIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file_.GetIntArray(Key(name)));
    if (std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != values[0]; })) {
      return absl::UnimplementedError(
          absl::StrFormat("%s: %s differs between layers, which is not supported", file_.path(), Key(name)));
    }
    return InRange(name, values[0], min, max);
  }

  absl::StatusOr<double> Float(std::string_view name, double min, double max) const {
    QUIRE_ASSIGN_OR_RETURN(const double value, file_.GetFloat(Key(name)));
    if (!(value >= min && value <= max)) {
      return Error(name, absl::StrFormat("is %g, allowed are finite numbers from %g to %g", value, min, max));
    }
    return value;
  }

  absl::StatusOr<int64_t> IntOr(std::string_view name, int64_t absent, int64_t min, int64_t max) const {
    if (!Has(name)) return absent;
    return Int(name, min, max);
  }
  absl::StatusOr<double> FloatOr(std::string_view name, double absent, double min, double max) const {
    if (!Has(name)) return absent;
    return Float(name, min, max);
  }

 private:
  absl::StatusOr<int64_t> InRange(std::string_view name, int64_t value, int64_t min, int64_t max) const {
    if (value >= min && value <= max) return value;
    return Error(name, absl::StrFormat("is %d, allowed is %d to %d", value, min, max));
  }

  const GgufFile& file_;
  std::string prefix_;
};

// Rows of the embedding, which the tokens and vocab_size must equal: ids without text, or text without rows, would only
// show while serving.
absl::StatusOr<int32_t> ReadVocabSize(const GgufFile& file, const Metadata& metadata) {
  const GgufFile::Tensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensor token_embd.weight is missing or no matrix", file.path()));
  }
  const int64_t rows = embedding->dims[1];
  if (rows < 1 || rows > kMaxVocabSize) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: token_embd.weight has %d rows, allowed is 1 to %d", file.path(), rows, kMaxVocabSize));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t vocab_size, metadata.IntOr("vocab_size", rows, 1, kMaxVocabSize));
  if (vocab_size != rows) {
    return metadata.Error("vocab_size", absl::StrFormat("is %d, but token_embd.weight has %d rows", vocab_size, rows));
  }
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (file.Has(kTokens)) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t tokens, file.ArrayLength(kTokens));
    if (tokens != rows) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: %s holds %d tokens, but token_embd.weight has %d rows",
                                                        file.path(), kTokens, tokens, rows));
    }
  }
  return static_cast<int32_t>(rows);
}

absl::Status ReadShapes(const GgufFile& file, const Metadata& metadata, ModelConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(config->hidden_size, metadata.Int("embedding_length", 1, kMaxHiddenSize));
  QUIRE_ASSIGN_OR_RETURN(config->num_layers, metadata.Int("block_count", 1, kMaxLayers));
  QUIRE_ASSIGN_OR_RETURN(config->num_heads,
                         metadata.IntOfAllLayers("attention.head_count", config->num_layers, 1, kMaxHeads));
  config->num_kv_heads = config->num_heads;
  if (metadata.Has("attention.head_count_kv")) {
    QUIRE_ASSIGN_OR_RETURN(config->num_kv_heads, metadata.IntOfAllLayers("attention.head_count_kv", config->num_layers,
                                                                         1, config->num_heads));
  }
  if (config->num_heads % config->num_kv_heads != 0) {
    return metadata.Error("attention.head_count_kv",
                          absl::StrFormat("is %d, which does not divide attention.head_count %d", config->num_kv_heads,
                                          config->num_heads));
  }
  if (!metadata.Has("attention.key_length") && config->hidden_size % config->num_heads != 0) {
    return metadata.Error("attention.head_count", absl::StrFormat("is %d, which does not divide embedding_length %d",
                                                                  config->num_heads, config->hidden_size));
  }
  QUIRE_ASSIGN_OR_RETURN(config->head_dim, metadata.IntOr("attention.key_length",
                                                          config->hidden_size / config->num_heads, 2, kMaxHeadDim));
  QUIRE_ASSIGN_OR_RETURN(const int64_t value_length,
                         metadata.IntOr("attention.value_length", config->head_dim, 2, kMaxHeadDim));
  if (config->head_dim < 2 || config->head_dim > kMaxHeadDim || config->head_dim % 2 != 0 ||
      value_length != config->head_dim) {
    return metadata.Error("attention.key_length",
                          absl::StrFormat("is %d and value_length %d: they must be equal, even and at most %d",
                                          config->head_dim, value_length, kMaxHeadDim));
  }
  QUIRE_ASSIGN_OR_RETURN(config->intermediate_size,
                         metadata.IntOfAllLayers("feed_forward_length", config->num_layers, 1, kMaxIntermediateSize));
  QUIRE_ASSIGN_OR_RETURN(config->rms_norm_eps,
                         metadata.Float("attention.layer_norm_rms_epsilon", kMinRmsNormEps, kMaxRmsNormEps));
  QUIRE_ASSIGN_OR_RETURN(config->max_position_embeddings, metadata.Int("context_length", kMinPositions, kMaxPositions));
  QUIRE_ASSIGN_OR_RETURN(config->vocab_size, ReadVocabSize(file, metadata));
  return absl::OkStatus();
}

// rope_freqs.weight: what each frequency is divided by.
absl::StatusOr<std::vector<float>> ReadFreqDivisors(const GgufFile& file, int32_t rotary_dim) {
  const GgufFile::Tensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  const auto error = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: tensor rope_freqs.weight: %s", file.path(), what));
  };
  std::vector<float> divisors(rotary_dim / 2);
  if (tensor->type != 0 || tensor->dims.size() != 1 || tensor->dims[0] != rotary_dim / 2) {
    return error(absl::StrFormat("%d values of type F32 are needed", rotary_dim / 2));
  }
  std::memcpy(divisors.data(), tensor->data, divisors.size() * sizeof(float));
  for (float divisor : divisors) {
    if (!std::isfinite(divisor) || divisor <= 0)
      return error(absl::StrFormat("%g is no finite number above 0", divisor));
  }
  return divisors;
}

absl::Status ReadRope(const GgufFile& file, const Metadata& metadata, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  QUIRE_ASSIGN_OR_RETURN(rope.theta, metadata.FloatOr("rope.freq_base", 10000, kMinRopeTheta, kMaxRopeTheta));
  QUIRE_ASSIGN_OR_RETURN(rope.rotary_dim,
                         metadata.IntOr("rope.dimension_count", config->head_dim, 2, config->head_dim));
  if (rope.rotary_dim % 2 != 0) {
    return metadata.Error("rope.dimension_count", absl::StrFormat("is %d, it must be even", rope.rotary_dim));
  }
  QUIRE_ASSIGN_OR_RETURN(rope.freq_divisors, ReadFreqDivisors(file, rope.rotary_dim));

  std::string_view type = "none";
  const std::string factor_key = metadata.Has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  if (metadata.Has("rope.scaling.type")) {
    QUIRE_ASSIGN_OR_RETURN(type, file.GetString(metadata.Key("rope.scaling.type")));
  } else if (metadata.Has(factor_key)) {
    type = "linear";  // what a factor alone means
  }
  if (type == "none") return absl::OkStatus();
  if (type != "linear" && type != "yarn") {
    return absl::UnimplementedError(absl::StrFormat(
        "%s: rope scaling type '%s' is not supported: none, linear, yarn are", file.path(), Printable(type)));
  }
  QUIRE_ASSIGN_OR_RETURN(rope.factor, metadata.Float(factor_key, kMinRopeFactor, kMaxRopeFactor));
  rope.type = RopeConfig::Type::kLinear;
  if (type == "linear") return absl::OkStatus();

  rope.type = RopeConfig::Type::kYarn;
  QUIRE_ASSIGN_OR_RETURN(
      rope.original_max_position_embeddings,
      metadata.IntOr("rope.scaling.original_context_length", config->max_position_embeddings, 1, kMaxPositions));
  QUIRE_ASSIGN_OR_RETURN(rope.beta_fast, metadata.FloatOr("rope.scaling.yarn_beta_fast", 32, 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope.beta_slow, metadata.FloatOr("rope.scaling.yarn_beta_slow", 1, 1e-6, 1e6));
  for (std::string_view name : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    QUIRE_ASSIGN_OR_RETURN(const double value, metadata.FloatOr(name, 1, -1e6, 1e6));
    if (value != 1) return metadata.Error(name, absl::StrFormat("is %g: only 1 is supported", value));
  }
  // GGUF's factor multiplies YaRN's own.
  QUIRE_ASSIGN_OR_RETURN(const double attention, metadata.FloatOr("rope.scaling.attn_factor", 1, 1e-6, 1e6));
  rope.attention_factor = attention * (0.1 * std::log(rope.factor) + 1);
  return absl::OkStatus();
}

// Which layers the window is for: all; with a number n, all but every n-th; with a list, those whose entry is not 0.
absl::Status ReadWindows(const GgufFile& file, const Metadata& metadata, ModelConfig* config) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  QUIRE_ASSIGN_OR_RETURN(const int64_t window, metadata.IntOr("attention.sliding_window", 0, 0, INT64_MAX));
  std::vector<bool> windowed(config->num_layers, true);
  if (const absl::StatusOr<int64_t> length = file.ArrayLength(metadata.Key(kPattern)); length.ok()) {
    if (*length != config->num_layers) {
      return metadata.Error(kPattern, absl::StrFormat("has %d entries for %d layers: one a layer is needed", *length,
                                                      config->num_layers));
    }
    QUIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> entries, file.GetIntArray(metadata.Key(kPattern)));
    for (int32_t i = 0; i < config->num_layers; ++i) windowed[i] = entries[i] != 0;
  } else if (metadata.Has(kPattern)) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t period, metadata.Int(kPattern, 0, kMaxLayers));
    for (int32_t i = 0; period > 0 && i < config->num_layers; ++i) windowed[i] = i % period < period - 1;
  }
  SetWindows(windowed, window, config);
  return absl::OkStatus();
}

absl::Status RefuseUnsupported(const GgufFile& file, const Metadata& metadata) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t experts, metadata.IntOr("expert_count", 0, 0, INT32_MAX));
  if (experts > 0) return metadata.Error("expert_count", "is above 0: mixtures of experts are not supported");
  for (std::string_view name : {"attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "logit_scale",
                                "embedding_scale", "residual_scale", "attn_logit_softcapping",
                                "final_logit_softcapping", "rope.scaling.yarn_log_multiplier", "rope.scaling.alpha"}) {
    if (metadata.Has(name)) return metadata.Error(name, "is given: this is not supported");
  }
  if (file.Has(metadata.Key("attention.causal"))) {
    QUIRE_ASSIGN_OR_RETURN(const bool causal, file.GetBool(metadata.Key("attention.causal")));
    if (!causal) return metadata.Error("attention.causal", "is false: only causal attention is supported");
  }
  return absl::OkStatus();
}

// -1 if absent or outside the vocabulary.
absl::StatusOr<int32_t> ReadTokenId(const GgufFile& file, std::string_view name, int32_t vocab_size) {
  const std::string key = absl::StrFormat("tokenizer.ggml.%s_token_id", name);
  if (!file.Has(key)) return -1;
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(key));
  return id >= 0 && id < vocab_size ? static_cast<int32_t>(id) : -1;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  const Architecture* architecture = FindArchitectureByGgufName(name);
  if (architecture == nullptr) {
    return absl::UnimplementedError(absl::StrFormat("%s: architecture '%s' is not supported, these are: %s",
                                                    file.path(), Printable(name), KnownArchitectures()));
  }
  const Metadata metadata(file, name);
  ModelConfig config;
  config.architecture = architecture->name;
  config.model_type = architecture->model_type;
  QUIRE_RETURN_IF_ERROR(ReadShapes(file, metadata, &config));
  QUIRE_RETURN_IF_ERROR(RefuseUnsupported(file, metadata));
  QUIRE_RETURN_IF_ERROR(ReadWindows(file, metadata, &config));
  QUIRE_RETURN_IF_ERROR(ReadRope(file, metadata, &config));
  const absl::StatusOr<int64_t> file_type = file.GetInt("general.file_type");
  // ALL_F32 of the GGUF specification, MOSTLY_BF16 of llama.cpp.
  if (file_type.ok()) config.dtype = *file_type == 0 ? DType::kF32 : *file_type == 32 ? DType::kBf16 : DType::kF16;
  config.tie_word_embeddings = file.FindTensor("output.weight") == nullptr;
  config.attention_bias = architecture->always_qkv_bias || file.FindTensor("blk.0.attn_q.bias") != nullptr;
  config.attention_output_bias = file.FindTensor("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.FindTensor("blk.0.ffn_down.bias") != nullptr;
  for (std::string_view role : {"eos", "eot"}) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(file, role, config.vocab_size));
    if (id >= 0 && (config.eos_token_ids.empty() || config.eos_token_ids[0] != id)) config.eos_token_ids.push_back(id);
  }
  QUIRE_ASSIGN_OR_RETURN(config.bos_token_id, ReadTokenId(file, "bos", config.vocab_size));
  QUIRE_ASSIGN_OR_RETURN(config.pad_token_id, ReadTokenId(file, "padding", config.vocab_size));
  return config;
}

}  // namespace quire
