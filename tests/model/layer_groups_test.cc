// Layers of different windows in one model: how they share blocks, and that giving blocks back changes nothing.

#include "model/layer_groups.h"

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/gguf_builder.h"
#include "tests/model/model_test_util.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/step_driver.h"

namespace quire::testing {
namespace {

using ::testing::ElementsAre;

ModelConfig ConfigWith(std::vector<int32_t> windows) {
  ModelConfig config;
  config.num_layers = static_cast<int32_t>(windows.size());
  config.layer_windows = std::move(windows);
  return config;
}

TEST(LayerGroupsTest, LayersOfOneKindAreOneGroup) {
  ModelConfig config;
  config.num_layers = 3;
  for (const int32_t window : {0, 24}) {
    if (window > 0) config.layer_windows.assign(3, window);
    const LayerGroups groups = GroupLayers(config);
    ASSERT_EQ(groups.size(), 1);
    EXPECT_EQ(groups.layers_per_block, 3);
    EXPECT_EQ(groups.groups[0].window, window);
    EXPECT_THAT(groups.groups[0].layers, ElementsAre(0, 1, 2));
  }
}

TEST(LayerGroupsTest, FullAttentionComesFirst) {
  const LayerGroups groups = GroupLayers(ConfigWith({8, 0, 8, 0}));
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups.layers_per_block, 2);
  EXPECT_EQ(groups.groups[0].window, 0);
  EXPECT_THAT(groups.groups[0].layers, ElementsAre(1, 3));
  EXPECT_EQ(groups.groups[1].window, 8);
  EXPECT_THAT(groups.groups[1].layers, ElementsAre(0, 2));
}

// Five sliding layers to one full: blocks of 20 layers would waste 16 on the 4 full ones.
TEST(LayerGroupsTest, LargeGroupsAreCutInsteadOfPaddingSmallOnes) {
  std::vector<int32_t> windows;
  for (int32_t layer = 0; layer < 24; ++layer) windows.push_back(layer % 6 == 5 ? 0 : 512);
  const LayerGroups groups = GroupLayers(ConfigWith(windows));
  EXPECT_EQ(groups.layers_per_block, 4);
  EXPECT_EQ(groups.size(), 6);
}

TEST(LayerGroupsTest, EveryLayerIsInOneGroupAndGroupsAreFew) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    std::vector<int32_t> windows;
    for (uint32_t layer = 0; layer < 1 + seed % 61; ++layer) {
      windows.push_back(static_cast<int32_t>((seed * 2654435761u + layer * layer * 40503u) >> 7 & 3) * 64);
    }
    const ModelConfig config = ConfigWith(windows);
    const LayerGroups groups = GroupLayers(config);
    EXPECT_LE(groups.size(), LayerGroups::kMaxGroups);
    std::vector<int32_t> seen(windows.size(), 0);
    for (const LayerGroup& group : groups.groups) {
      EXPECT_LE(static_cast<int32_t>(group.layers.size()), groups.layers_per_block);
      for (const int32_t layer : group.layers) {
        ++seen[layer];
        EXPECT_EQ(windows[layer], group.window);
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(seen.size())) << seed;
  }
}

// A model of six layers, of which `full` see everything and the others 24 keys; weights are random.
std::string HybridModel(const std::vector<int32_t>& full) {
  nlohmann::json config = nlohmann::json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "sliding_window": 24})");
  for (int32_t layer = 0; layer < 6; ++layer) {
    const bool is_full = std::find(full.begin(), full.end(), layer) != full.end();
    config["layer_types"].push_back(is_full ? "full_attention" : "sliding_attention");
  }
  return std::filesystem::path(WriteTemporaryFile("config.json", config.dump())).parent_path();
}

std::vector<int32_t> Ids(int32_t count, uint32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>((seed + i * 7919u) * 2654435761u >> 16) % 316 + 4);
  return ids;
}

// Log-probabilities of the last rows of three sequences, computed together in pieces of at most `chunk` tokens.
std::vector<std::vector<float>> LastLogprobs(ModelRunner& runner, int32_t chunk, uint32_t seed) {
  StepDriver driver(runner, seed);
  const size_t all_blocks = driver.num_free();
  const std::vector<int32_t> windows = runner.group_windows();
  std::vector<int> sequences;
  std::vector<int32_t> lengths = {5, 90, kSanitized ? 60 : 300};
  for (const int32_t length : lengths) sequences.push_back(driver.Add(Ids(length, length)));
  std::vector<std::vector<float>> logprobs(lengths.size());
  while (true) {
    std::vector<StepPart> parts;
    std::vector<size_t> who;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int32_t left = lengths[s] - driver.num_computed(sequences[s]);
      if (left == 0) continue;
      parts.push_back({.sequence = sequences[s], .num_tokens = std::min(left, chunk), .num_logprobs = -1});
      who.push_back(s);
    }
    if (parts.empty()) break;
    const auto outputs = driver.Step(parts);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return {};
    for (size_t p = 0; p < parts.size(); ++p) {
      logprobs[who[p]] = LogprobsById((*outputs)[p].samples[0], runner.vocab_size());
      for (size_t g = 0; g < windows.size(); ++g) {
        if (windows[g] == 0) continue;
        EXPECT_LE(driver.num_held(parts[p].sequence, g),
                  (windows[g] + runner.block_size() - 1) / runner.block_size() + 1);
      }
    }
  }
  for (const int sequence : sequences) driver.Free(sequence);
  EXPECT_EQ(driver.num_free(), all_blocks);
  return logprobs;
}

TEST(LayerGroupsTest, GivingBlocksBackChangesNoBit) {
  for (const std::vector<int32_t>& full : {std::vector<int32_t>{1, 3, 5}, {5}, {}}) {
    const std::string model = HybridModel(full);
    for (const TestBackend& backend : TestBackends()) {
      SCOPED_TRACE(backend.name + " with " + std::to_string(full.size()) + " full layers");
      const auto one_table = MakeRunner(model, backend.options, {.random_weights = true});
      ASSERT_TRUE(one_table.ok()) << one_table.status();
      const auto expected = LastLogprobs(**one_table, /*chunk=*/1000, 1);
      ASSERT_EQ(expected.size(), 3u);
      for (const int32_t block_size : {1, 16, 32}) {
        const auto runner = MakeRunner(model, backend.options,
                                       {.block_size = block_size, .group_layers = true, .random_weights = true});
        ASSERT_TRUE(runner.ok()) << runner.status();
        EXPECT_EQ((*runner)->group_windows().size(), full.size() == 3 ? 2u : full.size() == 1 ? 6u : 1u);
        for (const int32_t chunk : {1000, 29, 1}) {
          EXPECT_EQ(LastLogprobs(**runner, chunk, block_size), expected)
              << "block " << block_size << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(LayerGroupsTest, MistralGivesBackBlocksOfItsOneGroup) {
  const auto model = RefPath("tiny/mistral");
  if (!model) GTEST_SKIP() << "no oracle data: tiny/mistral";
  const BackendOptions backend = TestBackends().back().options;
  const auto one_table = MakeRunner(*model, backend);
  ASSERT_TRUE(one_table.ok()) << one_table.status();
  const auto runner = MakeRunner(*model, backend, {.block_size = 8, .num_kv_tokens = 1024, .group_layers = true});
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_THAT((*runner)->group_windows(), ElementsAre(24));
  const auto expected = LastLogprobs(**one_table, 1000, 1);
  for (const int32_t chunk : {64, 1}) EXPECT_EQ(LastLogprobs(**runner, chunk, 2), expected) << chunk;
}

// The same step with tables of another group missing, or naming no block.
TEST(LayerGroupsTest, BatchesThatLackAGroupAreRefused) {
  const auto runner = MakeRunner(HybridModel({1, 3, 5}), {.kind = DeviceKind::kReference, .num_threads = 1},
                                 {.group_layers = true, .random_weights = true});
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<int32_t> ids = {5}, positions = {0}, cu_q_lens = {0, 1}, contexts = {1};
  const std::vector<int32_t> slots = {16}, table = {1}, other_slots = {32}, other_table = {2}, far = {1 << 20};
  const std::vector<SampleRow> samples = {{.logits_row = 0}};
  const auto message = [&](std::vector<GroupTables> more) {
    ForwardBatch batch;
    batch.token_ids = ids;
    batch.positions = positions;
    batch.slot_mapping = slots;
    batch.block_tables = table;
    batch.block_table_stride = 1;
    batch.more_groups = more;
    batch.cu_q_lens = cu_q_lens;
    batch.context_lens = contexts;
    batch.samples = samples;
    const absl::Status status = (*runner)->Submit(batch);
    StepResult result;
    if (status.ok()) {
      EXPECT_TRUE((*runner)->Wait(&result).ok());
    }
    return std::string(status.message());
  };
  EXPECT_EQ(message({{other_slots, other_table, 1}}), "");
  EXPECT_NE(message({}).find("more_groups"), std::string::npos);
  EXPECT_NE(message({{other_slots, far, 1}}).find("block_tables"), std::string::npos);
  EXPECT_NE(message({{far, other_table, 1}}).find("slot_mapping"), std::string::npos);
  EXPECT_NE(message({{other_slots, {}, 0}}).find("context_lens"), std::string::npos);
}

}  // namespace
}  // namespace quire::testing
