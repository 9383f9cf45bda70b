// Beam search with real arithmetic: the hypotheses of a search that runs each beam alone, whatever is shared, cached,
// copied or preempted.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "scheduler/engine.h"
#include "tests/testing/naive_beam_search.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

constexpr int32_t kVocabSize = 320, kMaxModelLen = 160;

struct Case {
  DeviceKind device = DeviceKind::kCpu;
  int32_t block_size = 16;
  bool caching = true;
  int32_t num_kv_blocks = 0;  // 0: plenty
};

// An engine of one tiny model, read by the thread that asks.
class TinyEngine {
 public:
  struct Answer {
    std::vector<std::vector<int32_t>> tokens;  // by sequence
    std::vector<double> scores;
    std::vector<TokenLogprob> logprobs;  // of everything
    SequenceOutput last;
  };

  TinyEngine(const std::string& model, const Case& c) {
    EngineOptions options;
    options.model_path = model;
    options.device = c.device;
    options.num_threads = 1;
    options.max_model_len = kMaxModelLen;
    options.block_size = c.block_size;
    options.num_kv_blocks = c.num_kv_blocks > 0 ? c.num_kv_blocks : 4096 / c.block_size;
    options.scheduler.enable_prefix_caching = c.caching;
    engine_ = *CreateEngine(options);
  }

  // Submits all, then reads until all have ended.
  std::vector<Answer> Run(const std::vector<std::pair<std::vector<int32_t>, SamplingParams>>& requests) {
    std::vector<Answer> answers(requests.size());
    const uint64_t first = next_handle_;
    for (size_t i = 0; i < requests.size(); ++i) {
      const SamplingParams& params = requests[i].second;
      answers[i].tokens.resize(params.n);
      answers[i].scores.resize(params.n);
      EngineRequest request =
          MakeEngineRequest(requests[i].first, params, engine_->info().block_size, engine_->info().key_context);
      request.handle = next_handle_++;
      EXPECT_EQ(engine_->Submit(std::move(request)), absl::OkStatus());
    }
    engine_->Start();  // by the first call; its step finds every request
    for (size_t ended = 0; ended < requests.size();) {
      const StepOutputs* outputs = engine_->outputs(0).Pop();
      for (const SequenceOutput& event : outputs->sequences) {
        Answer& answer = answers[event.handle - first];
        EXPECT_EQ(event.error, absl::OkStatus());
        if (event.token_id >= 0) answer.tokens[event.sequence_index].push_back(event.token_id);
        const auto begin = outputs->logprobs.begin() + event.logprobs_begin;
        answer.logprobs.insert(answer.logprobs.end(), begin, begin + event.logprobs_count);
        if (event.finish_reason != FinishReason::kNone) answer.scores[event.sequence_index] = event.score;
        answer.last = event;
        ended += event.request_finished;
      }
      engine_->outputs(0).Release();
    }
    EXPECT_EQ(engine_->CheckInvariants(), absl::OkStatus());
    return answers;
  }
  EngineStats stats() const { return engine_->GetStats(); }

 private:
  std::unique_ptr<Engine> engine_;
  uint64_t next_handle_ = 1;
};

// The model's log-probabilities behind a list of tokens, computed alone and remembered.
class Oracle {
 public:
  explicit Oracle(const std::string& model, DeviceKind device) : engine_(model, {device, 16, false}) {}

  std::vector<TokenLogprob> operator()(absl::Span<const int32_t> tokens) {
    std::vector<TokenLogprob>& known = known_[{tokens.begin(), tokens.end()}];
    if (known.empty()) {
      SamplingParams params;
      params.temperature = 0;
      params.max_tokens = 1;
      params.logprobs = -1;
      known = engine_.Run({{{tokens.begin(), tokens.end()}, params}}).at(0).logprobs;
      known.erase(known.begin());  // the chosen one comes again
    }
    return known;
  }

 private:
  TinyEngine engine_;
  std::map<std::vector<int32_t>, std::vector<TokenLogprob>> known_;
};

std::vector<int32_t> Ids(int32_t n, int32_t seed) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; ++i) ids[i] = (i * i * 7 + i * 31 + seed * 13) % kVocabSize;
  return ids;
}

// Of several lengths and rules, with ids that often end hypotheses.
std::vector<std::pair<std::vector<int32_t>, SamplingParams>> Searches() {
  std::vector<std::pair<std::vector<int32_t>, SamplingParams>> searches;
  for (int32_t i = 0; i < 6; ++i) {
    SamplingParams params;
    params.temperature = 0;
    params.beam_width = 2 + i;
    params.n = 1 + i;
    params.max_tokens = 14 - i;
    params.min_tokens = i % 3;
    params.ignore_eos = true;
    params.length_penalty = 0.5f * static_cast<float>(i);
    params.early_stopping = static_cast<EarlyStopping>(i % 3);
    for (int32_t id = i; i > 0 && id < kVocabSize; id += 9) {
      if (params.stop_token_ids.size() < 36) params.stop_token_ids.push_back(id);
    }
    searches.emplace_back(Ids(15 + 6 * i, i % 3), params);
  }
  return searches;
}

class BeamSearchTinyTest : public ::testing::TestWithParam<Case> {};

TEST_P(BeamSearchTinyTest, FindsWhatASearchOfSeparateRunsFinds) {
  const auto model = RefPath("tiny/llama_gqa");
  if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
  Oracle oracle(*model, GetParam().device);
  TinyEngine engine(*model, GetParam());
  const auto searches = Searches();
  const std::vector<TinyEngine::Answer> answers = engine.Run(searches);
  int stopped = 0, full = 0;
  for (size_t i = 0; i < searches.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& [prompt, params] = searches[i];
    const std::vector<NaiveHypothesis> expected =
        NaiveBeamSearch(prompt, params, params.max_tokens, params.stop_token_ids,
                        [&](absl::Span<const int32_t> tokens) { return oracle(tokens); });
    ASSERT_EQ(answers[i].tokens.size(), expected.size());
    for (size_t s = 0; s < expected.size(); ++s) {
      EXPECT_EQ(answers[i].tokens[s], expected[s].output);
      EXPECT_EQ(answers[i].scores[s], expected[s].score);
      (static_cast<int32_t>(expected[s].output.size()) < params.max_tokens ? stopped : full) += 1;
    }
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(full, 0);
  if (GetParam().num_kv_blocks > 0) {
    EXPECT_GT(engine.stats().preemptions, 0);
  }
}

// tests/data/beam_search/make_beams.py: generate(num_beams=4) of transformers.
TEST(BeamSearchTest, FindsWhatHuggingFaceFinds) {
  std::map<std::string, std::vector<nlohmann::ordered_json>> by_model;
  for (nlohmann::ordered_json& line : ReadJsonLines(SourcePath("tests/data/beam_search/tiny.jsonl")))
    by_model[line["model"].get<std::string>()].push_back(std::move(line));
  EXPECT_GE(by_model.size(), 9u);
  const std::map<nlohmann::ordered_json, EarlyStopping> kEarly = {
      {false, EarlyStopping::kNo}, {true, EarlyStopping::kYes}, {"never", EarlyStopping::kNever}};
  for (const auto& [model, lines] : by_model) {
    const auto path = RefPath("tiny/" + model);
    ASSERT_TRUE(path) << model;
    TinyEngine engine(*path, {DeviceKind::kReference});
    std::vector<std::pair<std::vector<int32_t>, SamplingParams>> searches;
    for (const nlohmann::ordered_json& line : lines) {
      SamplingParams params;
      params.temperature = 0;
      params.beam_width = 4;
      params.n = static_cast<int32_t>(line["outputs"].size());
      params.max_tokens = line["max_tokens"];
      params.min_tokens = line["min_tokens"];
      params.length_penalty = line["length_penalty"];
      params.early_stopping = kEarly.at(line["early_stopping"]);
      params.ignore_eos = true;
      params.stop_token_ids = line["stop_token_ids"].get<std::vector<int32_t>>();
      searches.emplace_back(line["input_ids"].get<std::vector<int32_t>>(), params);
    }
    const std::vector<TinyEngine::Answer> answers = engine.Run(searches);
    for (size_t i = 0; i < lines.size(); ++i) {
      SCOPED_TRACE(lines[i].dump());
      EXPECT_EQ(answers[i].tokens, lines[i]["outputs"].get<std::vector<std::vector<int32_t>>>());
      for (size_t s = 0; s < answers[i].scores.size(); ++s)
        EXPECT_NEAR(answers[i].scores[s], lines[i]["scores"][s].get<double>(), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BeamSearchTinyTest,
                         ::testing::Values(Case{DeviceKind::kReference}, Case{DeviceKind::kReference, 1, false},
                                           Case{DeviceKind::kCpu}, Case{DeviceKind::kCpu, 1},
                                           Case{DeviceKind::kCpu, 32}, Case{DeviceKind::kCpu, 16, false},
                                           Case{DeviceKind::kCpu, 32, false}, Case{DeviceKind::kCpu, 1, true, 160},
                                           Case{DeviceKind::kCpu, 16, true, 10}, Case{DeviceKind::kCpu, 16, false, 10},
                                           Case{DeviceKind::kReference, 16, true, 10}),
                         [](const auto& param_info) {
                           const Case& c = param_info.param;
                           return std::string(c.device == DeviceKind::kCpu ? "Cpu" : "Reference") + "Block" +
                                  std::to_string(c.block_size) + (c.caching ? "" : "NoCache") +
                                  (c.num_kv_blocks > 0 ? "TinyPool" : "");
                         });

}  // namespace
}  // namespace quire::testing
