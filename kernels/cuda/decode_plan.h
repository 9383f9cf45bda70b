#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

// How the keys of a decode step are split over thread blocks: pure arithmetic on the host, once a step.
namespace quire::cuda {

// Keys [begin, end) of a sequence; begin is a multiple of 16. `partial`: where the result of this part goes, -1 if it
// is the whole and goes straight to the output.
struct DecodeSplit {
  int32_t sequence = 0;
  int32_t begin = 0, end = 0;
  int32_t partial = -1;
};

struct DecodePlan {
  std::vector<DecodeSplit> splits;
  // [S + 1]: partial results of sequence s are merge_begin[s] .. merge_begin[s + 1] - 1; none for a sequence in one
  // part.
  std::vector<int32_t> merge_begin;
  int32_t tokens_per_split = 0;
};

struct DecodePlanOptions {
  int32_t window = 0;  // > 0: a query sees this many keys, itself included
  // Thread blocks that fill the device, over the KV heads: at least 1. The number of splits is at most max(S, this), so
  // that buffers of that size can be captured in a graph.
  int32_t target_splits = 1;
  int32_t min_tokens_per_split = 128;
  // > 0: split points at multiples of it at absolute positions, whatever else is in the batch (--deterministic). The
  // number of splits is then the sum of ceil(context / fixed).
  int32_t fixed_tokens_per_split = 0;
};

// First key that the query at position context - 1 sees.
inline int32_t FirstKey(int32_t context, int32_t window) { return window > 0 ? std::max(0, context - window) : 0; }

// Splits of `chunk` tokens (a multiple of 16) that the sequence needs, begin aligned down to 16.
inline int32_t NumSplits(int32_t context, int32_t window, int32_t chunk, bool absolute) {
  const int32_t first = FirstKey(context, window) / 16 * 16;
  if (context <= 0) return 0;
  if (absolute) return (context + chunk - 1) / chunk - first / chunk;
  return (context - first + chunk - 1) / chunk;
}

// The smallest splits, not below the minimum, whose number fits the target. context_lens: each >= 0; a sequence of 0
// has no split, and its output is not written.
inline void PlanDecode(absl::Span<const int32_t> context_lens, const DecodePlanOptions& options, DecodePlan* plan) {
  const bool absolute = options.fixed_tokens_per_split > 0;
  const int64_t limit = std::max<int64_t>(static_cast<int64_t>(context_lens.size()), options.target_splits);
  const auto count = [&](int32_t chunk) {
    int64_t sum = 0;
    for (const int32_t context : context_lens) sum += NumSplits(context, options.window, chunk, absolute);
    return sum;
  };
  const int32_t longest = context_lens.empty() ? 0 : *std::max_element(context_lens.begin(), context_lens.end());
  int32_t low = (std::max(options.min_tokens_per_split, 16) + 15) / 16, high = std::max(low, (longest + 31) / 16);
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (count(middle * 16) <= limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const int32_t chunk = absolute ? options.fixed_tokens_per_split : low * 16;
  plan->tokens_per_split = chunk;
  plan->splits.clear();
  plan->merge_begin.assign(1, 0);
  int32_t partials = 0;
  for (size_t s = 0; s < context_lens.size(); ++s) {
    const int32_t context = context_lens[s], parts = NumSplits(context, options.window, chunk, absolute);
    int32_t begin = FirstKey(context, options.window) / 16 * 16;
    for (int32_t p = 0; p < parts; ++p) {
      const int32_t end = std::min(context, absolute ? (begin / chunk + 1) * chunk : begin + chunk);
      plan->splits.push_back({static_cast<int32_t>(s), begin, end, parts > 1 ? partials++ : -1});
      begin = end;
    }
    plan->merge_begin.push_back(partials);
  }
  // Long parts first: they end last.
  std::stable_sort(plan->splits.begin(), plan->splits.end(),
                   [](const DecodeSplit& a, const DecodeSplit& b) { return a.end - a.begin > b.end - b.begin; });
}

}  // namespace quire::cuda
