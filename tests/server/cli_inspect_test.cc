// quire inspect: needs no server.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cli_runner.h"
#include "tests/testing/ref_data.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

TEST(InspectTest, CountsTensorsAndMemory) {
  const auto path = testing::RefPath("gguf/tiny_llama_mix.gguf");
  if (!path) GTEST_SKIP() << "no oracle data gguf/tiny_llama_mix.gguf";
  const RunResult result = RunCli({"inspect", *path, "--json", "--context", "100", "--memory", "1MiB"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.Lines();
  ASSERT_EQ(lines.size(), 1u);
  const nlohmann::json& json = lines[0];
  EXPECT_EQ(json["architecture"], "LlamaForCausalLM");
  int64_t bytes = 0;
  for (const nlohmann::json& group : json["tensors"]) bytes += group["bytes"].get<int64_t>();
  EXPECT_EQ(json["weight_bytes"], bytes);
  EXPECT_GT(bytes, 0);
  const int64_t per_token =
      2 * json["layers"].get<int64_t>() * json["kv_heads"].get<int64_t>() * json["head_dim"].get<int64_t>() * 2;
  EXPECT_EQ(json["kv_bytes_per_token"], per_token);
  EXPECT_EQ(json["tokens"], (1 << 20) / per_token);
  EXPECT_EQ(json["sequences"], (1 << 20) / per_token / 100);

  const RunResult f32 = RunCli({"inspect", *path, "--json", "--kv-cache-dtype", "f32"});
  EXPECT_EQ(f32.Lines()[0]["kv_bytes_per_token"], 2 * per_token);
  EXPECT_FALSE(f32.Lines()[0].contains("tokens"));
  const RunResult e4m3 = RunCli({"inspect", *path, "--json", "--kv-cache-dtype", "fp8_e4m3"});
  EXPECT_EQ(e4m3.Lines()[0]["kv_bytes_per_token"], per_token / 2);
  const RunResult int8 = RunCli({"inspect", *path, "--json", "--kv-cache-dtype", "int8"});
  EXPECT_EQ(int8.Lines()[0]["kv_cache_dtype"], "int8");
  const int64_t scales = 2 * json["layers"].get<int64_t>() * json["kv_heads"].get<int64_t>() * 4;
  EXPECT_EQ(int8.Lines()[0]["kv_bytes_per_token"], per_token / 2 + scales);

  const RunResult text = RunCli({"inspect", *path, "--memory", "1MiB"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(text.out, HasSubstr("1.0 MiB hold " + std::to_string((1 << 20) / per_token) + " tokens"));
}

TEST(InspectTest, ReadsHuggingFaceDirectories) {
  const auto path = testing::RefPath("tiny/llama_gqa");
  if (!path) GTEST_SKIP() << "no oracle data tiny/llama_gqa";
  const RunResult result = RunCli({"inspect", *path, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = result.Lines()[0];
  ASSERT_FALSE(json["tensors"].empty());
  EXPECT_GT(json["weight_bytes"], 0);
}

TEST(InspectTest, ModelsOfFloat32KeepAFloat32Cache) {
  const auto f32 = testing::RefPath("tiny/llama_mqa"), f16 = testing::RefPath("tiny/llama_gqa");
  if (!f32 || !f16) GTEST_SKIP() << "no oracle data tiny/llama_mqa and tiny/llama_gqa";
  EXPECT_EQ(RunCli({"inspect", *f32, "--json"}).Lines()[0]["kv_cache_dtype"], "f32");
  EXPECT_EQ(RunCli({"inspect", *f16, "--json"}).Lines()[0]["kv_cache_dtype"], "f16");
  EXPECT_EQ(RunCli({"inspect", *f32, "--json", "--kv-cache-dtype", "f16"}).Lines()[0]["kv_cache_dtype"], "f16");
}

TEST(InspectTest, WindowsBoundWhatASequenceTakes) {
  const auto path = testing::RefPath("tiny/mistral");
  if (!path) GTEST_SKIP() << "no oracle data tiny/mistral";
  const auto inspect = [&](const std::string& context) {
    return RunCli({"inspect", *path, "--json", "--memory", "1MiB", "--context", context}).Lines()[0];
  };
  const int64_t per_token = 2 * 3 * 2 * 32 * 2;  // K and V, layers, KV heads, head size, f16
  EXPECT_EQ(inspect("10")["kv_bytes_per_sequence"], 10 * per_token);
  EXPECT_EQ(inspect("400")["kv_bytes_per_sequence"], 24 * per_token);
  EXPECT_EQ(inspect("400")["sequences"], (1 << 20) / (24 * per_token));
  EXPECT_EQ(inspect("400")["layer_windows"], nlohmann::json({24, 24, 24}));
  EXPECT_THAT(RunCli({"inspect", *path}).out, HasSubstr("3 of 3 layers see 24 tokens"));
}

TEST(InspectTest, BadModelsEndWith66) {
  const RunResult missing = RunCli({"inspect", "no/such/model.gguf"});
  EXPECT_EQ(missing.exit_code, 66);
  EXPECT_THAT(missing.err, HasSubstr("no/such/model.gguf"));
  EXPECT_EQ(missing.out, "");
  const RunResult no_model = RunCli({"inspect", testing::SourcePath("README.md")});
  EXPECT_EQ(no_model.exit_code, 66);
  EXPECT_NE(no_model.err, "");
}

TEST(InspectTest, ModelsThatLackWhatTheyPromiseEndWith66) {
  if (!testing::RefPath("malformed/manifest.json")) GTEST_SKIP() << "no oracle data malformed";
  const std::vector<std::pair<std::string, std::string>> cases = {{"gguf/model_missing_tensor.gguf", "is missing"},
                                                                  {"gguf/model_wrong_shape.gguf", "has the shape"},
                                                                  {"index/tensor_not_in_index", "is missing"},
                                                                  {"config/vocab_differs_from_rows", "has the shape"}};
  for (const auto& [file, problem] : cases) {
    const RunResult result = RunCli({"inspect", *testing::RefPath("malformed/" + file)});
    EXPECT_EQ(result.exit_code, 66) << file;
    EXPECT_EQ(result.out, "") << file;
    EXPECT_THAT(result.err, HasSubstr(file));
    EXPECT_THAT(result.err, HasSubstr(problem));
  }
}

}  // namespace
}  // namespace quire::cli
