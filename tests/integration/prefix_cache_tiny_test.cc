// Prefix caching with real arithmetic: whatever is found, copied or recomputed, answers and scores keep their bits.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/request.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

constexpr int32_t kVocabSize = 320;

// An engine of one tiny model, asked one request after the other.
class TinyEngine {
 public:
  TinyEngine(const std::string& model, int32_t block_size, bool caching) {
    EngineOptions options;
    options.model_path = model;
    options.device = DeviceKind::kCpu;
    options.num_threads = 1;
    options.max_model_len = 480;
    options.block_size = block_size;
    options.num_kv_blocks = 8192 / block_size;
    options.scheduler.enable_prefix_caching = caching;
    engine_ = *CreateEngine(options);
    collector_ = std::make_unique<OutputCollector>(*engine_, 1);
    engine_->Start();
  }
  ~TinyEngine() {
    engine_->Stop();
    collector_->Join();
  }

  OutputCollector::Request Run(std::vector<int32_t> prompt, SamplingParams params,
                               const std::string& weights_version = "") {
    return collector_->Await(Submit(std::move(prompt), std::move(params), {}, weights_version));
  }

  uint64_t Submit(std::vector<int32_t> prompt, SamplingParams params, ForkOrigin fork_of,
                  const std::string& weights_version = "") {
    KeyContext context = engine_->info().key_context;
    context.weights_version += weights_version;
    EngineRequest request =
        MakeEngineRequest(std::move(prompt), std::move(params), engine_->info().block_size, context);
    request.handle = ++handle_;
    request.fork_of = fork_of;
    EXPECT_EQ(engine_->Submit(std::move(request)), absl::OkStatus());
    return handle_;
  }
  OutputCollector& collector() { return *collector_; }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OutputCollector> collector_;
  uint64_t handle_ = 0;
};

class PrefixCacheTinyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    model_ = *model;
  }
  std::string model_;
};

std::vector<int32_t> Ids(int32_t n, int32_t seed = 1) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; ++i) ids[i] = (i * i * 7 + i * 31 + seed * 13) % kVocabSize;
  return ids;
}

SamplingParams Greedy(int32_t max_tokens) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  params.logprobs = 0;
  return params;
}

TEST_F(PrefixCacheTinyTest, ANextChatTurnComputesNothingButItsNewTokens) {
  for (const int32_t block_size : {1, 16, 32}) {
    TinyEngine cached(model_, block_size, true), plain(model_, block_size, false);
    std::vector<int32_t> chat = Ids(21);
    int32_t known = 0;
    for (int32_t turn = 0; turn < 5; ++turn) {
      const auto answer = cached.Run(chat, Greedy(13)), expected = plain.Run(chat, Greedy(13));
      EXPECT_EQ(answer.last.cached_tokens, known < block_size ? 0 : known);
      EXPECT_EQ(expected.last.cached_tokens, 0);
      const auto& sequence = answer.sequences.at(0);
      EXPECT_EQ(sequence.tokens, expected.sequences.at(0).tokens);
      EXPECT_EQ(sequence.logprobs, expected.sequences.at(0).logprobs) << "to the bit";
      chat.insert(chat.end(), sequence.tokens.begin(), sequence.tokens.end());
      known = static_cast<int32_t>(chat.size()) - 1;  // the last token was never fed
      const std::vector<int32_t> next = Ids(9, 40 + turn);
      chat.insert(chat.end(), next.begin(), next.end());
    }
  }
}

TEST_F(PrefixCacheTinyTest, B004_AnEarlierBatchThatStoppedChangesNoAnswer) {
  std::vector<std::vector<int32_t>> targets;
  for (int32_t i = 0; i < 4; ++i) targets.push_back(Ids(30 + 11 * i));
  std::vector<std::vector<int32_t>> expected;
  for (const auto& target : targets) {
    TinyEngine cold(model_, 16, true);
    expected.push_back(cold.Run(target, Greedy(24)).sequences.at(0).tokens);
  }
  TinyEngine warm(model_, 16, true);
  for (size_t i = 0; i < targets.size(); ++i) {  // few shots that end on a stop in the middle of their answers
    SamplingParams params = Greedy(24);
    params.stop_token_ids = {expected[i][5 + i]};
    std::vector<int32_t> shot = targets[i];
    EXPECT_LE(warm.Run(shot, params).sequences.at(0).tokens.size(), 6 + i);
    shot.resize(shot.size() - 3);
    warm.Run(shot, Greedy(7));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto answer = warm.Run(targets[i], Greedy(24));
    EXPECT_GT(answer.last.cached_tokens, 0);
    EXPECT_EQ(answer.sequences.at(0).tokens, expected[i]);
  }
}

TEST_F(PrefixCacheTinyTest, B021_B022_ScoresAreComplete_AndEqualInAnyOrderAndTheSecondTime) {
  SamplingParams scored = Greedy(2);
  scored.prompt_logprobs = 0;
  constexpr int32_t kBlockSize = 16;
  const std::vector<int32_t> lengths = {kBlockSize - 1, kBlockSize + 1, 2 * kBlockSize + 5};
  TinyEngine forward(model_, kBlockSize, true), backward(model_, kBlockSize, true);
  std::vector<std::vector<float>> scores(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int again = 0; again < 2; ++again) {
      const auto request = forward.Run(Ids(lengths[i]), scored);
      EXPECT_EQ(request.scores.size(), static_cast<size_t>(lengths[i] - 1));
      if (again == 0) scores[i] = request.scores;
      EXPECT_EQ(request.scores, scores[i]);
    }
  }
  for (size_t i = lengths.size(); i-- > 0;) {
    backward.Run(Ids(lengths[i]), Greedy(2));
    EXPECT_EQ(backward.Run(Ids(lengths[i]), scored).scores, scores[i]);
  }
}

TEST_F(PrefixCacheTinyTest, B023_ColdAndWarmLogitsAreEqualToTheBit) {
  TinyEngine engine(model_, 16, true);
  for (const int32_t length : {5, 16, 33, 100}) {
    const auto cold = engine.Run(Ids(length, length), Greedy(1));
    for (int i = 0; i < 3; ++i) {
      const auto warm = engine.Run(Ids(length, length), Greedy(1));
      EXPECT_EQ(warm.last.cached_tokens, length - 1 < 16 ? 0 : length - 1);
      EXPECT_EQ(warm.sequences.at(0).tokens, cold.sequences.at(0).tokens);
      EXPECT_EQ(warm.sequences.at(0).logprobs, cold.sequences.at(0).logprobs);
    }
  }
}

TEST_F(PrefixCacheTinyTest, AForkOfARunningRequestGivesWhatItsTokensGive) {
  for (const int32_t block_size : {1, 16, 32}) {
    for (const bool caching : {true, false}) {
      TinyEngine engine(model_, block_size, caching), plain(model_, block_size, false);
      const std::vector<int32_t> prompt = Ids(21);
      const uint64_t parent = engine.Submit(prompt, Greedy(300), {});
      engine.collector().AwaitTokens(parent, 40);
      std::vector<int32_t> known = prompt;
      const std::vector<int32_t> output = engine.collector().requests()[parent].sequences[0].tokens;
      known.insert(known.end(), output.begin(), output.begin() + 40);
      std::vector<std::pair<std::vector<int32_t>, uint64_t>> forks;
      for (const int32_t at : {5, 32, 33, 48, 61}) {
        std::vector<int32_t> tokens(known.begin(), known.begin() + at);
        tokens.push_back(at);
        forks.emplace_back(tokens, engine.Submit(tokens, Greedy(12), {.handle = parent}));
      }
      for (const auto& [tokens, handle] : forks) {
        const auto answer = engine.collector().Await(handle), expected = plain.Run(tokens, Greedy(12));
        EXPECT_EQ(answer.sequences.at(0).tokens, expected.sequences.at(0).tokens);
        EXPECT_EQ(answer.sequences.at(0).logprobs, expected.sequences.at(0).logprobs) << "to the bit";
      }
      const auto whole = engine.collector().Await(parent), expected = plain.Run(prompt, Greedy(300));
      EXPECT_EQ(whole.sequences.at(0).tokens, expected.sequences.at(0).tokens);
    }
  }
}

TEST_F(PrefixCacheTinyTest, B028_OtherWeightsUnderTheSameNameFindNothing) {
  TinyEngine engine(model_, 16, true);
  engine.Run(Ids(40), Greedy(2));
  EXPECT_EQ(engine.Run(Ids(40), Greedy(2)).last.cached_tokens, 39);
  EXPECT_EQ(engine.Run(Ids(40), Greedy(2), " reloaded").last.cached_tokens, 0);
}

}  // namespace
}  // namespace quire::testing
