#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/engine.h"

// The proof that a sequence's tokens do not depend on what shares its steps, its blocks or its past: the same seeded
// requests through engines that are set up differently must give the same ids.
namespace quire::testing {

// What requests look like.
struct WorkloadOptions {
  int32_t num_requests = 200;
  int32_t vocab_size = 0;
  int32_t min_prompt = 1, max_prompt = 700;  // tokens
  int32_t prompt_skew = 1;                   // > 1: more short ones; lengths go with u^skew, u uniform
  int32_t min_output = 8, max_output = 48;
  int32_t max_n = 3;
  uint32_t seed = 1;
};

struct WorkloadRequest {
  std::vector<int32_t> prompt;
  SamplingParams params;
  ForkOrigin fork_of = {};  // handles are 1, 2, ... in order
};

// Greedy and sampled requests of 1 .. max_n sequences; about half of the prompts begin with a part of one of 8 common
// texts, and one in 8 is that of the request before. A pure function of the options.
std::vector<WorkloadRequest> MakeWorkload(const WorkloadOptions& options);

struct WorkloadResult {
  std::vector<std::vector<std::vector<int32_t>>> ids;  // [request][sequence]
  std::vector<int32_t> cached_tokens;                  // [request]
  EngineStats stats;
};

// Runs all requests, `one_at_a_time` or all submitted, in order, before the first step. Fails the current test unless
// every sequence ends by length or stop, and afterwards all blocks are free or cached and the invariants hold.
WorkloadResult RunWorkload(Engine& engine, const std::vector<WorkloadRequest>& workload, bool one_at_a_time);

// Fails the current test for the first request whose ids differ. `what` names the variant. `actual` may hold fewer
// requests: the first ones.
void ExpectSameIds(const WorkloadResult& expected, const WorkloadResult& actual, const std::string& what);

// Tokens that each request of a one-at-a-time run must find cached, from prompts and outputs alone: the longest
// beginning that any earlier request has computed, to the token, at most the prompt but its last token, or none of it
// if that is less than one block. Holds as long as nothing is evicted.
std::vector<int32_t> ExpectedCachedTokens(const std::vector<WorkloadRequest>& workload, const WorkloadResult& result,
                                          int32_t block_size);

}  // namespace quire::testing
