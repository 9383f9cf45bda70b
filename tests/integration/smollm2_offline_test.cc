// SmolLM2-135M-Instruct (Q4_1) on the CPU through front end, scheduler and engine, against what an f32 oracle chose.

#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "scheduler/engine.h"
#include "server/frontend/frontend.h"
#include "server/offline/offline_batch.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

using nlohmann::json;

// Quantised activations move a logit by less than this: a wider lead of the best id must stay.
constexpr float kClearGap = 0.8f;

class SmolLm2OfflineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = SmolLm2Path();
    if (!model) GTEST_SKIP() << "no SmolLM2 file: set QUIRE_TEST_MODEL or run deploy/quickstart";
    const auto greedy = RefPath("models/smollm2/greedy.jsonl");
    if (!greedy) GTEST_SKIP() << "no oracle data: models/smollm2/greedy.jsonl";
    prompts_ = ReadJsonLines(*greedy);
    auto tokenizer = LoadTokenizer(*model);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    EngineOptions options;
    options.model_path = *model;
    options.max_model_len = 2048;
    options.num_kv_blocks = 256;
    auto engine = CreateEngine(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    engine_->Start();
    FrontendOptions frontend;
    frontend.served_model_names = {"m"};
    frontend_ = std::make_unique<Frontend>(*engine_, *tokenizer_, frontend);
  }

  // The answers by id.
  std::map<std::string, json> Run(const std::string& lines) {
    std::istringstream in(lines);
    std::ostringstream out;
    const absl::Status status = RunOfflineBatch(*frontend_, in, out, /*max_in_flight=*/64);
    EXPECT_TRUE(status.ok()) << status;
    std::map<std::string, json> answers;
    std::istringstream result(out.str());
    for (std::string line; std::getline(result, line);) {
      json answer = json::parse(line);
      const std::string id = answer["id"].get<std::string>();
      EXPECT_TRUE(answers.emplace(id, std::move(answer)).second) << "answered twice: " << id;
    }
    return answers;
  }

  std::vector<nlohmann::ordered_json> prompts_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Frontend> frontend_;
};

TEST_F(SmolLm2OfflineTest, TheBestIdAtEveryRecordedStepIsTheOracles) {
  std::string lines;
  for (const auto& prompt : prompts_) {
    auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
    for (int32_t id : prompt["output_ids"].get<std::vector<int32_t>>()) ids.push_back(id);
    const json line = {
        {"id", prompt["name"].get<std::string>()}, {"prompt_ids", ids}, {"max_tokens", 1}, {"prompt_logprobs", 1}};
    lines += line.dump() + "\n";
  }
  const auto answers = Run(lines);
  ASSERT_EQ(answers.size(), prompts_.size());
  int steps = 0, equal_steps = 0, clear_steps = 0;
  for (const auto& prompt : prompts_) {
    const auto name = prompt["name"].get<std::string>();
    SCOPED_TRACE(name);
    const json& answer = answers.at(name);
    ASSERT_FALSE(answer.contains("error")) << answer;
    const auto output_ids = prompt["output_ids"].get<std::vector<int32_t>>();
    const auto gaps = prompt["top1_minus_top2"].get<std::vector<float>>();
    const size_t prompt_length = prompt["prompt_ids"].size();
    const json& logprobs = answer["prompt_logprobs"];
    ASSERT_EQ(logprobs.size(), prompt_length + output_ids.size());
    ASSERT_EQ(gaps.size(), output_ids.size());
    for (size_t i = 0; i < output_ids.size(); ++i) {
      const int32_t best = logprobs[prompt_length + i][0][0].get<int32_t>();
      ++steps;
      equal_steps += best == output_ids[i];
      if (gaps[i] <= kClearGap) continue;
      ++clear_steps;
      EXPECT_EQ(best, output_ids[i]) << "step " << i << ", gap " << gaps[i];
    }
  }
  std::printf("%d of %d steps equal, %d of them with a clear gap\n", equal_steps, steps, clear_steps);
  EXPECT_GE(clear_steps, 1200);
  EXPECT_GE(equal_steps, 0.95 * steps);
}

TEST_F(SmolLm2OfflineTest, ATextPromptIsTokenizedAndItsOutputDecoded) {
  for (const auto& prompt : prompts_) {
    if (prompt["name"] != "raw_story") continue;
    const json line = {
        {"id", "x"}, {"prompt", prompt["prompt"].get<std::string>()}, {"max_tokens", 64}, {"temperature", 0}};
    const json answer = Run(line.dump() + "\n").at("x");
    ASSERT_FALSE(answer.contains("error")) << answer;
    EXPECT_EQ(answer["usage"]["prompt_tokens"], prompt["prompt_ids"].size());
    const auto output_ids = answer["output_ids"].get<std::vector<int32_t>>();
    EXPECT_FALSE(output_ids.empty());
    EXPECT_EQ(answer["usage"]["completion_tokens"], output_ids.size());
    EXPECT_EQ(answer["text"], tokenizer_->Decode(output_ids, /*skip_special_tokens=*/true));
    // As ids, the prompt gives the same: the text was tokenized to them.
    const json ids = {{"id", "y"},
                      {"prompt_ids", prompt["prompt_ids"].get<std::vector<int32_t>>()},
                      {"max_tokens", 64},
                      {"temperature", 0}};
    EXPECT_EQ(Run(ids.dump() + "\n").at("y")["output_ids"], output_ids);
    return;
  }
  FAIL() << "no prompt raw_story";
}

}  // namespace
}  // namespace quire::testing
