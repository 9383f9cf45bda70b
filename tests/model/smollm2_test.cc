// SmolLM2-135M-Instruct (Q4_1) by teacher forcing against f32: every recorded step is compared, whatever a step before
// it would have chosen.

#include <algorithm>
#include <cmath>
#include <map>

#include "gtest/gtest.h"
#include "tests/model/model_test_util.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/step_driver.h"

namespace quire::testing {
namespace {

constexpr int32_t kChunk = 256;
constexpr int32_t kNumLogprobs = 256;

struct Prompt {
  std::vector<int32_t> ids;  // prompt and output
  int32_t prompt_length = 0;
  std::vector<int32_t> output_ids;
  std::vector<float> gaps;  // top-1 minus top-2 logit of each output step
  // Log-probabilities of the best ids at some positions, and of the prompt's own ids (index: position of the id).
  std::map<int32_t, std::vector<TokenLogprob>> best;
  std::map<int32_t, float> prompt_logprobs;
};

std::map<std::string, Prompt> LoadPrompts(const std::string& greedy_path, const std::string& logits_path) {
  std::map<std::string, Prompt> prompts;
  for (const auto& line : ReadJsonLines(greedy_path)) {
    Prompt& prompt = prompts[line["name"].get<std::string>()];
    prompt.ids = line["prompt_ids"].get<std::vector<int32_t>>();
    prompt.prompt_length = static_cast<int32_t>(prompt.ids.size());
    prompt.output_ids = line["output_ids"].get<std::vector<int32_t>>();
    prompt.gaps = line["top1_minus_top2"].get<std::vector<float>>();
    prompt.ids.insert(prompt.ids.end(), prompt.output_ids.begin(), prompt.output_ids.end());
  }
  for (const auto& line : ReadJsonLines(logits_path)) {
    Prompt& prompt = prompts.at(line["name"].get<std::string>());
    for (const auto& position : line["positions"]) {
      const double logsumexp = position["logsumexp"].get<double>();
      std::vector<TokenLogprob>& best = prompt.best[position["position"].get<int32_t>()];
      for (const auto& entry : position["top32"]) {
        best.push_back({entry[0].get<int32_t>(), static_cast<float>(entry[1].get<double>() - logsumexp)});
      }
    }
    if (!line.contains("prompt_logprobs") || line["prompt_logprobs"].is_null()) continue;
    const auto& logprobs = line["prompt_logprobs"];
    for (size_t i = 1; i < logprobs.size(); ++i)
      prompt.prompt_logprobs[static_cast<int32_t>(i)] = logprobs[i].get<float>();
  }
  return prompts;
}

// What comparing all prompts gave.
struct Report {
  int steps = 0, equal_steps = 0;
  int clear_steps = 0, wrong_clear_steps = 0;  // gap above the bound
  int compared_logprobs = 0;
  double sum_squares = 0, worst = 0;

  void Compare(double got, double want) {
    const double difference = std::abs(got - want);
    ++compared_logprobs;
    sum_squares += difference * difference;
    worst = std::max(worst, difference);
  }
  double rms() const { return std::sqrt(sum_squares / compared_logprobs); }
};

void CompareRow(const RowOutput& row, const std::vector<TokenLogprob>& want, Report* report) {
  std::map<int32_t, float> got;
  for (const TokenLogprob& entry : row.logprobs) got[entry.token_id] = entry.logprob;
  for (const TokenLogprob& entry : want) {
    // An id that fell out of the reported ones is at most as likely as the last of them.
    const auto found = got.find(entry.token_id);
    report->Compare(found != got.end() ? found->second : row.logprobs.back().logprob, entry.logprob);
  }
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = SmolLm2Path();
    const auto greedy = RefPath("models/smollm2/greedy.jsonl"), logits = RefPath("models/smollm2/logits.jsonl");
    perplexity_ = RefPath("models/smollm2/perplexity.json");
    if (!model_ || !greedy || !logits || !perplexity_) GTEST_SKIP() << "needs the SmolLM2 file and its oracle data";
    prompts_ = LoadPrompts(*greedy, *logits);
  }

  void RunPrompts(const BackendOptions& backend, float clear_gap, Report* report, std::optional<DType> kv_dtype = {}) {
    auto runner =
        MakeRunner(*model_, backend,
                   {.block_size = 32, .num_kv_tokens = 2048, .max_num_batched_tokens = kChunk, .kv_dtype = kv_dtype});
    ASSERT_TRUE(runner.ok()) << runner.status();
    StepDriver driver(**runner);
    for (const auto& [name, prompt] : prompts_) {
      SCOPED_TRACE(name);
      const int sequence = driver.Add(prompt.ids);
      const auto length = static_cast<int32_t>(prompt.ids.size()) - 1;  // nothing is recorded after the last id
      while (driver.num_computed(sequence) < length) {
        const int32_t begin = driver.num_computed(sequence), count = std::min(kChunk, length - begin);
        const auto outputs = driver.Step({{.sequence = sequence,
                                           .num_tokens = count,
                                           .sample_from = 0,
                                           .num_logprobs = kNumLogprobs,
                                           .score = !prompt.prompt_logprobs.empty() && begin < prompt.prompt_length}});
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        for (const RowOutput& row : outputs->front().samples) CompareSample(prompt, row, clear_gap, report);
        for (const RowOutput& row : outputs->front().scores) {
          const auto want = prompt.prompt_logprobs.find(row.position + 1);
          if (want != prompt.prompt_logprobs.end()) report->Compare(row.logprobs[0].logprob, want->second);
        }
      }
      driver.Free(sequence);
    }
    RecordProperty("steps", report->steps);
    RecordProperty("clear_steps", report->clear_steps);
    std::printf(
        "%d steps, %d equal; %d with a gap above %g, %d of them wrong; %d log-probabilities: rms %g, worst %g\n",
        report->steps, report->equal_steps, report->clear_steps, clear_gap, report->wrong_clear_steps,
        report->compared_logprobs, report->rms(), report->worst);
  }

  static void CompareSample(const Prompt& prompt, const RowOutput& row, float clear_gap, Report* report) {
    if (const auto best = prompt.best.find(row.position); best != prompt.best.end())
      CompareRow(row, best->second, report);
    const int32_t step = row.position - (prompt.prompt_length - 1);
    if (step < 0) return;
    const bool equal = row.token_id == prompt.output_ids[step];
    const bool clear = prompt.gaps[step] > clear_gap;
    report->steps += 1;
    report->equal_steps += equal;
    report->clear_steps += clear;
    report->wrong_clear_steps += clear && !equal;
  }

  // Decodes all prompts of at most `max_prompt` ids together, each feeding on its own choices, up to the first step
  // whose gap is not above `clear_gap`: from there on a near tie may go either way. Counts the compared steps.
  void RunFreely(const BackendOptions& backend, float clear_gap, int32_t max_prompt, int* num_steps) {
    auto runner =
        MakeRunner(*model_, backend, {.block_size = 32, .num_kv_tokens = 16384, .max_num_batched_tokens = kChunk});
    ASSERT_TRUE(runner.ok()) << runner.status();
    StepDriver driver(**runner);
    struct Running {
      const Prompt* prompt;
      int sequence;
      size_t step = 0;
    };
    std::vector<Running> running;
    for (const auto& [name, prompt] : prompts_) {
      if (prompt.prompt_length > max_prompt) continue;
      running.push_back({&prompt, driver.Add({prompt.ids.begin(), prompt.ids.begin() + prompt.prompt_length})});
      for (int32_t left = prompt.prompt_length - 1; left > 0; left -= kChunk) {
        const auto outputs = driver.Step({{.sequence = running.back().sequence,
                                           .num_tokens = std::min(left, kChunk),
                                           .sample_from = StepPart::kNoRow}});
        ASSERT_TRUE(outputs.ok()) << outputs.status();
      }
    }
    while (!running.empty()) {
      std::vector<StepPart> parts;
      for (const Running& r : running) parts.push_back({.sequence = r.sequence, .num_tokens = 1});
      const auto outputs = driver.Step(parts);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      std::vector<Running> next;
      for (size_t i = 0; i < running.size(); ++i) {
        Running r = running[i];
        if (r.prompt->gaps[r.step] <= clear_gap) continue;
        const int32_t id = (*outputs)[i].samples.front().token_id;
        ASSERT_EQ(id, r.prompt->output_ids[r.step]) << "sequence " << r.sequence << ", step " << r.step;
        ++*num_steps;
        driver.Append(r.sequence, id);
        if (++r.step < r.prompt->output_ids.size()) next.push_back(r);
      }
      running = std::move(next);
    }
    std::printf("%d steps decoded freely\n", *num_steps);
  }

  // Mean negative log-likelihood of the recorded text; the recorded one in *want.
  void MeanNll(const BackendOptions& backend, double* got, double* want, std::optional<DType> kv_dtype = {}) {
    const nlohmann::json file = ReadJson(*perplexity_);
    const auto ids = file["ids"].get<std::vector<int32_t>>();
    *want = file["mean_nll"].get<double>();
    auto runner =
        MakeRunner(*model_, backend,
                   {.block_size = 32, .num_kv_tokens = 2048, .max_num_batched_tokens = kChunk, .kv_dtype = kv_dtype});
    ASSERT_TRUE(runner.ok()) << runner.status();
    StepDriver driver(**runner);
    const int sequence = driver.Add(ids);
    const auto length = static_cast<int32_t>(ids.size()) - 1;
    double sum = 0;
    int scored = 0;
    while (driver.num_computed(sequence) < length) {
      const int32_t count = std::min(kChunk, length - driver.num_computed(sequence));
      const auto outputs =
          driver.Step({{.sequence = sequence, .num_tokens = count, .sample_from = StepPart::kNoRow, .score = true}});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (const RowOutput& row : outputs->front().scores) sum -= row.logprobs[0].logprob, ++scored;
    }
    ASSERT_EQ(scored, file["scored_tokens"].get<int>());
    *got = sum / scored;
    std::printf("mean negative log-likelihood %.6f, f32 has %.6f\n", *got, *want);
  }

  std::optional<std::string> model_, perplexity_;
  std::map<std::string, Prompt> prompts_;
};

constexpr BackendOptions kReference = {.kind = DeviceKind::kReference};
constexpr BackendOptions kCpu = {.kind = DeviceKind::kCpu};

TEST_F(SmolLm2Test, ReferenceGivesTheOraclesLogits) {
  Report report;
  RunPrompts(kReference, 0.01f, &report);
  EXPECT_GE(report.clear_steps, 1700);
  EXPECT_EQ(report.wrong_clear_steps, 0);
  EXPECT_GE(report.compared_logprobs, 2900);
  EXPECT_LE(report.worst, 2e-3);
}

TEST_F(SmolLm2Test, ReferenceGivesTheOraclesPerplexity) {
  double got = 0, want = 0;
  MeanNll(kReference, &got, &want);
  EXPECT_NEAR(got, want, 1e-4);
}

TEST_F(SmolLm2Test, CpuStaysWithinTheToleranceOfInt8Activations) {
  Report report;
  RunPrompts(kCpu, 0.8f, &report);
  EXPECT_GE(report.clear_steps, 1200);
  EXPECT_EQ(report.wrong_clear_steps, 0);
  EXPECT_GE(report.equal_steps, report.steps * 95 / 100);
  EXPECT_LE(report.rms(), 0.3);
}

TEST_F(SmolLm2Test, CpuStaysWithinTheToleranceOfAnInt8Cache) {
  Report report;
  RunPrompts(kCpu, 0.8f, &report, DType::kI8);
  EXPECT_GE(report.clear_steps, 1200);
  EXPECT_EQ(report.wrong_clear_steps, 0);
  EXPECT_GE(report.equal_steps, report.steps * 95 / 100);
}

TEST_F(SmolLm2Test, DecodingFreelyGivesTheOraclesIdsUpToTheFirstNearTie) {
  int reference_steps = 0, cpu_steps = 0;
  RunFreely(kReference, 0.01f, /*max_prompt=*/128, &reference_steps);
  RunFreely(kCpu, 0.8f, /*max_prompt=*/4096, &cpu_steps);
  EXPECT_GE(reference_steps, 1000);
  EXPECT_GE(cpu_steps, 25);  // half of the prompts begin with a gap of less than 0.8
}

TEST_F(SmolLm2Test, CpuKeepsThePerplexity) {
  double got = 0, want = 0;
  MeanNll(kCpu, &got, &want);
  EXPECT_NEAR(got, want, 0.01);
}

TEST_F(SmolLm2Test, SmallerTypesOfCacheKeepThePerplexity) {
  double exact = 0, want = 0;
  MeanNll(kCpu, &exact, &want, DType::kF32);
  for (const DType type : {DType::kBf16, DType::kI8}) {
    double got = 0;
    MeanNll(kCpu, &got, &want, type);
    std::printf("  KV of %s: %+.4f %% of that of f32\n", std::string(Name(type)).c_str(), (got / exact - 1) * 100);
    EXPECT_LE(got, exact * 1.001) << Name(type);
    EXPECT_NEAR(got, want, 0.01) << Name(type);
  }
}

}  // namespace
}  // namespace quire::testing
