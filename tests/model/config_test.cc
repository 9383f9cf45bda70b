#include "model/config.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/gguf_builder.h"
#include "tests/model/load_for_test.h"

namespace quire::testing {
namespace {

using nlohmann::json;

json GoodConfig() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 5000, "eos_token_id": 2})");
}

absl::StatusOr<ModelConfig> Load(const json& config, const std::string& generation = "") {
  const std::string path = WriteTemporaryFile("config.json", config.dump());
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!generation.empty()) std::ofstream(folder + "/generation_config.json") << generation;
  return LoadModelConfig(folder);
}

// The message for GoodConfig with one key changed.
std::string MessageWith(const char* key, const json& value) {
  json config = GoodConfig();
  config[key] = value;
  return std::string(Load(config).status().message());
}

TEST(ConfigTest, SaysWhatTheFilesCallTheirNumbers) {
  json config = GoodConfig();
  EXPECT_EQ(Load(config)->dtype, DType::kF16);
  config["torch_dtype"] = "float32";
  EXPECT_EQ(Load(config)->dtype, DType::kF32);
  config["dtype"] = "bfloat16";  // the newer spelling counts
  EXPECT_EQ(Load(config)->dtype, DType::kBf16);
  config["dtype"] = "float16";
  EXPECT_EQ(Load(config)->dtype, DType::kF16);
  config["dtype"] = nullptr;
  EXPECT_EQ(Load(config)->dtype, DType::kF32);
}

TEST(ConfigTest, ReadsBothSpellings) {
  const auto old_form = Load(GoodConfig());
  ASSERT_TRUE(old_form.ok()) << old_form.status();
  EXPECT_EQ(old_form->architecture, "LlamaForCausalLM");
  EXPECT_EQ(old_form->head_dim, 8);
  EXPECT_EQ(old_form->rope.theta, 5000);
  EXPECT_EQ(old_form->rope.rotary_dim, 8);
  EXPECT_EQ(old_form->eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(old_form->bos_token_id, -1);
  EXPECT_FALSE(old_form->tie_word_embeddings);

  json config = GoodConfig();
  config["rope_theta"] = nullptr;
  config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 7000.0},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  const auto new_form = Load(config);
  ASSERT_TRUE(new_form.ok()) << new_form.status();
  EXPECT_EQ(new_form->rope.theta, 7000);
  EXPECT_EQ(new_form->rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(new_form->rope.factor, 8);
  EXPECT_EQ(new_form->rope.original_max_position_embeddings, 64);

  config["rope_scaling"] = config["rope_parameters"];
  config["rope_scaling"].erase("rope_theta");
  EXPECT_TRUE(Load(config).ok());
  config["rope_scaling"]["factor"] = 4.0;
  EXPECT_NE(Load(config).status().message().find("rope_scaling"), absl::string_view::npos);
}

TEST(ConfigTest, GenerationConfigGivesDefaults) {
  const auto config = Load(GoodConfig(), R"({"eos_token_id": [3, 2, 4], "temperature": 0.6, "top_p": 0.9, "top_k": 20,
                                             "min_p": null, "repetition_penalty": 1.1})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_FLOAT_EQ(config->default_repetition_penalty.value(), 1.1f);
  EXPECT_FLOAT_EQ(config->default_temperature.value(), 0.6f);
  EXPECT_FLOAT_EQ(config->default_top_p.value(), 0.9f);
  EXPECT_EQ(config->default_top_k.value(), 20);
  EXPECT_FALSE(config->default_min_p.has_value());
  EXPECT_FALSE(Load(GoodConfig(), R"({"temperature": -1})").ok());
  EXPECT_FALSE(Load(GoodConfig(), R"({"repetition_penalty": 0})").ok());
  EXPECT_FALSE(Load(GoodConfig(), R"({"eos_token_id": 64})").ok());
  EXPECT_FALSE(Load(GoodConfig(), "{").ok());
}

// The end ids of a model with these files beside config.json, whose own is 2.
std::vector<int32_t> EndIds(const std::string& tokenizer_config, const std::string& tokenizer) {
  const std::string folder =
      std::filesystem::path(WriteTemporaryFile("config.json", GoodConfig().dump())).parent_path();
  std::ofstream(folder + "/tokenizer_config.json") << tokenizer_config;
  if (!tokenizer.empty()) std::ofstream(folder + "/tokenizer.json") << tokenizer;
  const auto config = LoadModelConfig(folder);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->eos_token_ids : std::vector<int32_t>();
}

// The union of all sources: a turn's end that only the tokenizer names ends a sequence.
TEST(ConfigTest, B092EndIdsAreThoseOfAllFiles) {
  const std::string added = R"({"added_tokens": [{"id": 5, "content": "<a>"}, {"id": 7, "content": "<end>"}]})";
  EXPECT_EQ(EndIds(R"({"eos_token": "<end>"})", added), (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(EndIds(R"({"eos_token": {"content": "<end>"}})", added), (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(EndIds(R"({"eos_token": "<a>", "added_tokens_decoder": {"9": {"content": "<a>"}}})", ""),
            (std::vector<int32_t>{2, 9}));
  EXPECT_EQ(EndIds(R"({"eos_token": "<end>", "added_tokens_decoder": {"2": {"content": "<end>"}}})", ""),
            (std::vector<int32_t>{2}));
  for (const char* const nothing : {"{}", R"({"eos_token": null})", R"({"eos_token": "<b>"})", R"({"eos_token": 3})"}) {
    EXPECT_EQ(EndIds(nothing, added), std::vector<int32_t>{2}) << nothing;
  }
  EXPECT_EQ(EndIds(R"({"eos_token": "<end>"})", R"({"added_tokens": [{"id": 64, "content": "<end>"}]})"),
            std::vector<int32_t>{2});  // the model has no such row
}

TEST(ConfigTest, RefusesByNameWhatWouldChangeResults) {
  EXPECT_EQ(MessageWith("attention_dropout", 0.0), "");
  EXPECT_EQ(MessageWith("sliding_window", 128), "");  // no narrower than the model's own limit
  EXPECT_NE(MessageWith("sliding_window", 127).find("sliding_window is 127"), std::string::npos);
  EXPECT_NE(MessageWith("hidden_act", "gelu").find("hidden_act"), std::string::npos);
  EXPECT_NE(MessageWith("layer_types", {"full_attention", "linear_attention"}).find("linear_attention"),
            std::string::npos);
  EXPECT_NE(MessageWith("quantization_config", {{"quant_method", "gptq"}}).find("gptq"), std::string::npos);
  EXPECT_NE(MessageWith("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}).find("dynamic"), std::string::npos);
  EXPECT_NE(MessageWith("architectures", {"LlamaForCausalLM", "Other"}).find("architectures"), std::string::npos);
  EXPECT_NE(MessageWith("hidden_size", 33).find("num_attention_heads"), std::string::npos);
  EXPECT_NE(MessageWith("rms_norm_eps", 0).find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(MessageWith("head_dim", 258).find("head_dim"), std::string::npos);
  EXPECT_NE(MessageWith("vocab_size", nullptr).find("vocab_size"), std::string::npos);
  EXPECT_NE(MessageWith("max_position_embeddings", 1).find("max_position_embeddings"), std::string::npos);
  EXPECT_NE(MessageWith("model_type", "qwen2").find("model_type"), std::string::npos);
  EXPECT_NE(MessageWith("model_type", 1).find("model_type"), std::string::npos);
  EXPECT_EQ(MessageWith("model_type", "house-made"), "");
  EXPECT_NE(MessageWith("rope_scaling", {{"facter", 2.0}}).find("facter"), std::string::npos);
}

TEST(ConfigTest, Qwen2HasBiasesAndAnUnusedWindow) {
  json config = GoodConfig();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["model_type"] = "qwen2";
  config["sliding_window"] = 32;
  config["use_sliding_window"] = false;
  const auto loaded = Load(config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->attention_bias);
  EXPECT_FALSE(loaded->attention_output_bias);
  EXPECT_TRUE(loaded->layer_windows.empty());
}

// Layer windows of a configuration, or the message.
std::string Windows(const json& config) {
  const auto loaded = Load(config);
  if (!loaded.ok()) return std::string(loaded.status().message());
  return absl::StrJoin(loaded->layer_windows, " ");
}

TEST(ConfigTest, MistralsWindowIsForAllLayers) {
  json config = GoodConfig();
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
  config["sliding_window"] = 24;
  EXPECT_EQ(Windows(config), "24 24");
  config["use_sliding_window"] = false;
  EXPECT_EQ(Windows(config), "");
  config.erase("use_sliding_window");
  config["sliding_window"] = nullptr;
  EXPECT_EQ(Windows(config), "");
  config["max_position_embeddings"] = 8192;
  EXPECT_EQ(Windows(config), "");
  config.erase("sliding_window");
  EXPECT_EQ(Windows(config), "4096 4096");
  config["max_position_embeddings"] = 4096;  // no position leaves the window
  EXPECT_EQ(Windows(config), "");
  config["sliding_window"] = 0;
  EXPECT_NE(Windows(config).find("sliding_window is 0"), std::string::npos);
}

TEST(ConfigTest, Qwen2sWindowBeginsAtALayer) {
  json config = GoodConfig();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["model_type"] = "qwen2";
  config["sliding_window"] = 32;
  EXPECT_EQ(Windows(config), "");  // not used unless asked for
  config["use_sliding_window"] = true;
  EXPECT_EQ(Windows(config), "");  // from layer 28 on
  config["max_window_layers"] = 1;
  EXPECT_EQ(Windows(config), "0 32");
  config["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(Windows(config), "32 0");
  config["use_sliding_window"] = false;
  EXPECT_NE(Windows(config).find("layer_types"), std::string::npos);
}

TEST(ConfigTest, LayerTypesSayWhichLayersSlide) {
  json config = GoodConfig();
  config["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_NE(Windows(config).find("layer_types"), std::string::npos);  // no window to slide in
  config["sliding_window"] = 16;
  EXPECT_EQ(Windows(config), "0 16");
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(Windows(config), "");
  config["layer_types"] = {"sliding_attention"};
  EXPECT_NE(Windows(config).find("a list of 2 entries"), std::string::npos);
}

// A complete model of one layer.
GgufBuilder GoodGguf(bool feed_forward_length = true) {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").U32("llama.context_length", 64).U32("llama.embedding_length", 16);
  builder.U32("llama.block_count", 1).U32("llama.attention.head_count", 4);
  if (feed_forward_length) builder.U32("llama.feed_forward_length", 24);
  builder.U32("llama.attention.head_count_kv", 2).F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  builder.Tensor("token_embd.weight", {16, 40})
      .Tensor("output_norm.weight", {16})
      .Tensor("blk.0.attn_norm.weight", {16});
  builder.Tensor("blk.0.attn_q.weight", {16, 16}).Tensor("blk.0.attn_k.weight", {16, 8});
  builder.Tensor("blk.0.attn_v.weight", {16, 8}).Tensor("blk.0.attn_output.weight", {16, 16});
  builder.Tensor("blk.0.ffn_norm.weight", {16}).Tensor("blk.0.ffn_gate.weight", {16, 24});
  return builder.Tensor("blk.0.ffn_up.weight", {16, 24}).Tensor("blk.0.ffn_down.weight", {24, 16});
}

std::string GgufMessage(const GgufBuilder& builder) {
  return std::string(LoadModelFiles(WriteTemporaryFile("test.gguf", builder.Bytes())).message());
}

TEST(ConfigTest, ReadsGgufMetadata) {
  const auto config = LoadModelConfig(WriteTemporaryFile("test.gguf", GoodGguf().Bytes()));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->vocab_size, 40);
  EXPECT_EQ(config->head_dim, 4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_FALSE(config->attention_bias);
  EXPECT_EQ(GgufMessage(GoodGguf()), "");
  EXPECT_EQ(config->dtype, DType::kF16);  // not said
  const std::pair<uint32_t, DType> file_types[] = {
      {0, DType::kF32}, {1, DType::kF16}, {7, DType::kF16}, {32, DType::kBf16}};
  for (const auto& [file_type, dtype] : file_types) {
    const GgufBuilder typed = GoodGguf().U32("general.file_type", file_type);
    EXPECT_EQ(LoadModelConfig(WriteTemporaryFile("test.gguf", typed.Bytes()))->dtype, dtype) << file_type;
  }
}

TEST(ConfigTest, GgufArraysHaveOneEntryForEachLayer) {
  const auto message = [](std::vector<uint32_t> sizes) {
    std::string value = GgufBuilder::Raw(uint32_t{4}) + GgufBuilder::Raw(static_cast<uint64_t>(sizes.size()));
    for (uint32_t size : sizes) value += GgufBuilder::Raw(size);
    GgufBuilder builder = GoodGguf(/*feed_forward_length=*/false);
    return GgufMessage(builder.Add("llama.feed_forward_length", 9, value));
  };
  EXPECT_EQ(message({24}), "");
  EXPECT_NE(message({}).find("feed_forward_length has 0 entries"), std::string::npos);
  EXPECT_NE(message({24, 24}).find("feed_forward_length has 2 entries"), std::string::npos);
}

std::string GgufWindows(const GgufBuilder& builder) {
  const auto config = LoadModelConfig(WriteTemporaryFile("test.gguf", builder.Bytes()));
  if (!config.ok()) return std::string(config.status().message());
  return absl::StrJoin(config->layer_windows, " ");
}

TEST(ConfigTest, GgufWindows) {
  const auto builder = [] { return GoodGguf().U32("llama.attention.sliding_window", 32); };
  constexpr char kPattern[] = "llama.attention.sliding_window_pattern";
  const auto flags = [](std::vector<uint8_t> values) {  // an array of bools
    std::string bytes = GgufBuilder::Raw(uint32_t{7}) + GgufBuilder::Raw(static_cast<uint64_t>(values.size()));
    return bytes.append(values.begin(), values.end());
  };
  EXPECT_EQ(GgufWindows(builder()), "32");
  EXPECT_EQ(GgufWindows(GoodGguf().U32("llama.attention.sliding_window", 0)), "");
  EXPECT_EQ(GgufWindows(GoodGguf().U32("llama.attention.sliding_window", 64)), "");  // all positions see each other
  EXPECT_EQ(GgufWindows(builder().U32(kPattern, 1)), "");                            // every layer is full
  EXPECT_EQ(GgufWindows(builder().U32(kPattern, 2)), "32");
  EXPECT_EQ(GgufWindows(builder().Add(kPattern, 9, flags({0}))), "");
  EXPECT_EQ(GgufWindows(builder().Add(kPattern, 9, flags({1}))), "32");
  EXPECT_NE(GgufWindows(builder().Add(kPattern, 9, flags({1, 1}))).find("2 entries for 1 layers"), std::string::npos);
}

TEST(ConfigTest, RefusesGgufFeaturesByName) {
  EXPECT_NE(GgufMessage(GoodGguf().U32("llama.expert_count", 8)).find("expert_count"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().F32("llama.logit_scale", 2)).find("logit_scale"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().String("llama.rope.scaling.type", "spiral")).find("spiral"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf()
                            .String("llama.rope.scaling.type", "yarn")
                            .F32("llama.rope.scaling.factor", 4)
                            .F32("llama.rope.scaling.yarn_ext_factor", 0.5f))
                .find("yarn_ext_factor"),
            std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().U32("llama.vocab_size", 41)).find("vocab_size"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().U32("llama.attention.value_length", 8)).find("value_length"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().Tensor("blk.0.attn_q_norm.weight", {4})).find("attn_q_norm"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().Tensor("blk.0.attn_q.bias", {16})).find("blk.0.attn_k.bias"), std::string::npos);
  EXPECT_NE(GgufMessage(GoodGguf().Tensor("rope_freqs.weight", {2})).find("rope_freqs.weight"), std::string::npos);
}

}  // namespace
}  // namespace quire::testing
