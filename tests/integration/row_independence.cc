#include "tests/integration/row_independence.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "scheduler/request.h"
#include "tests/scheduler/engine_test_util.h"

namespace quire::testing {
namespace {

constexpr int kNumTexts = 8;

// Uniform in low .. high; std's distributions differ between libraries.
int32_t Draw(std::mt19937& random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
}

std::vector<int32_t> RandomTokens(std::mt19937& random, int32_t count, int32_t vocab_size) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = Draw(random, 0, vocab_size - 1);
  return tokens;
}

int32_t DrawLength(std::mt19937& random, const WorkloadOptions& options) {
  const double u = static_cast<double>(random()) * 0x1p-32;
  return options.min_prompt +
         static_cast<int32_t>(std::pow(u, options.prompt_skew) * (options.max_prompt - options.min_prompt + 1));
}

SamplingParams DrawParams(std::mt19937& random, const WorkloadOptions& options) {
  SamplingParams params;
  params.n = Draw(random, 1, options.max_n);
  params.max_tokens = Draw(random, options.min_output, options.max_output);
  params.seed = random();
  params.ignore_eos = true;
  params.temperature = 0;
  if (Draw(random, 0, 1) == 1) {
    params.temperature = static_cast<float>(Draw(random, 5, 15)) / 10;
    if (Draw(random, 0, 1) == 1) params.top_p = 0.9f;
    if (Draw(random, 0, 1) == 1) params.top_k = 40;
    if (Draw(random, 0, 3) == 0) params.min_p = 0.02f;
  }
  if (Draw(random, 0, 7) == 0) params.logprobs = Draw(random, 0, 5);
  return params;
}

}  // namespace

std::vector<WorkloadRequest> MakeWorkload(const WorkloadOptions& options) {
  std::mt19937 random(options.seed);
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < kNumTexts; ++i) texts.push_back(RandomTokens(random, options.max_prompt, options.vocab_size));
  std::vector<WorkloadRequest> workload(options.num_requests);
  for (WorkloadRequest& request : workload) {
    const int32_t length = DrawLength(random, options);
    request.prompt = RandomTokens(random, length, options.vocab_size);
    if (Draw(random, 0, 1) == 1) {
      std::copy_n(texts[Draw(random, 0, kNumTexts - 1)].begin(), Draw(random, 0, length), request.prompt.begin());
    }
    // Some have the prompt of the one before.
    if (&request != &workload.front() && Draw(random, 0, 7) == 0) request.prompt = (&request - 1)->prompt;
    request.params = DrawParams(random, options);
  }
  return workload;
}

WorkloadResult RunWorkload(Engine& engine, const std::vector<WorkloadRequest>& workload, bool one_at_a_time) {
  OutputCollector collector(engine, 1);
  // All at once: the first step finds every request, so that what the scheduler decides does not depend on threads.
  if (one_at_a_time) engine.Start();
  for (size_t i = 0; i < workload.size(); ++i) {
    EngineRequest request =
        MakeEngineRequest(workload[i].prompt, workload[i].params, engine.info().block_size, engine.info().key_context);
    request.handle = i + 1;
    request.fork_of = workload[i].fork_of;
    const absl::Status status = engine.Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
    if (one_at_a_time) engine.WaitIdle(absl::InfiniteFuture());
  }
  if (!one_at_a_time) engine.Start();
  engine.WaitIdle(absl::InfiniteFuture());

  WorkloadResult result;
  result.stats = engine.GetStats();
  EXPECT_EQ(result.stats.kv_blocks_active, 0);
  EXPECT_EQ(result.stats.kv_blocks_free + result.stats.kv_blocks_cached, engine.info().num_kv_blocks);
  const absl::Status invariants = engine.CheckInvariants();
  EXPECT_TRUE(invariants.ok()) << invariants;
  engine.Stop();
  collector.Join();
  for (const auto& [handle, request] : collector.requests()) {
    EXPECT_EQ(request.num_final_events, 1);
    result.cached_tokens.push_back(request.last.cached_tokens);
    result.ids.emplace_back();
    for (const auto& [index, sequence] : request.sequences) {
      EXPECT_TRUE(sequence.last.finish_reason == FinishReason::kLength ||
                  sequence.last.finish_reason == FinishReason::kStop)
          << sequence.last.error;
      result.ids.back().push_back(sequence.tokens);
    }
    EXPECT_EQ(result.ids.back().size(), static_cast<size_t>(workload[handle - 1].params.n));
  }
  EXPECT_EQ(result.ids.size(), workload.size());
  return result;
}

void ExpectSameIds(const WorkloadResult& expected, const WorkloadResult& actual, const std::string& what) {
  ASSERT_FALSE(actual.ids.empty()) << what;
  ASSERT_GE(expected.ids.size(), actual.ids.size()) << what;
  for (size_t i = 0; i < actual.ids.size(); ++i) ASSERT_EQ(expected.ids[i], actual.ids[i]) << what << ", request " << i;
}

std::vector<int32_t> ExpectedCachedTokens(const std::vector<WorkloadRequest>& workload, const WorkloadResult& result,
                                          int32_t block_size) {
  std::set<std::vector<int32_t>> computed;  // in this order a neighbour shares the longest beginning
  std::vector<int32_t> expected;
  for (size_t i = 0; i < workload.size(); ++i) {
    const std::vector<int32_t>& prompt = workload[i].prompt;
    const auto shared = [&](const std::vector<int32_t>& tokens) {
      const auto differ = std::mismatch(prompt.begin(), prompt.end() - 1, tokens.begin(), tokens.end()).first;
      return static_cast<int32_t>(differ - prompt.begin());
    };
    const auto after = computed.lower_bound(prompt);
    const int32_t cached_after = after == computed.end() ? 0 : shared(*after);
    const int32_t cached_before = after == computed.begin() ? 0 : shared(*std::prev(after));
    const int32_t longest = std::max(cached_after, cached_before);
    expected.push_back(longest < block_size ? 0 : longest);
    for (const std::vector<int32_t>& output : result.ids[i]) {
      std::vector<int32_t> tokens = prompt;
      tokens.insert(tokens.end(), output.begin(), output.end() - 1);  // the last token is never computed
      computed.insert(std::move(tokens));
    }
  }
  return expected;
}

}  // namespace quire::testing
