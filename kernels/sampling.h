#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/logit_rules.h"
#include "kernels/ops.h"
#include "kernels/sampling_filters.h"
#include "kernels/vocab_scan.h"

// Ops::SampleTokens of the host backends. The rules are those of vLLM (interface in kernels/ops.h); equal values are
// kept and drawn in the order of their ids, so that top-k keeps exactly k. Rows do not influence each other, and a row
// gives the same on every x86-64 machine.
namespace quire {

// Below this temperature a row is greedy.
inline constexpr float kGreedyTemperature = 1e-5f;

// Working memory of one thread; grows to the vocabulary's size and is then reused.
struct SamplingScratch {
  TokenDistribution distribution;
  std::vector<float> logits;  // a copy, where masks and rules change some
  std::vector<Candidate> candidates;
  RuleScratch rules;
};

// Sets scratch->distribution from the raw logits of one row and the parameters in `row`.
void ComputeDistribution(absl::Span<const float> logits, const SampleRow& row, SamplingScratch* scratch);

// The id at `uniform` in [0, 1) of the cumulative distribution. REQUIRES: not bad_logits.
int32_t DrawToken(const TokenDistribution& distribution, float uniform);

// The probabilities the token is drawn with, size V; empty if bad_logits. For tests.
std::vector<double> FinalProbabilities(absl::Span<const float> logits, const SampleRow& row);

// The op. `scratch` has one entry for each thread of the pool. Allocates nothing once vocabulary and numbers of rows
// have been seen. Does not change the logits.
absl::Status SampleTokens(const SampleTokensParams& params, ThreadPool& pool, absl::Span<SamplingScratch> scratch);

}  // namespace quire
