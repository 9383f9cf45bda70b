#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

// The tiny models of the oracle data.
namespace quire::testing {

// A random sequence, and what transformers in f32 makes of it (the READMEs beside the data).
struct OracleSequence {
  std::vector<int32_t> ids, argmax, greedy;
  std::vector<float> argmax_gap, greedy_gap, last_logprobs;
};

struct Oracle {
  std::string path;
  std::vector<OracleSequence> sequences;
};

// "gguf/tiny_llama_mix", "tiny/llama_gqa"; nullopt without its files. Only short sequences under sanitizers, which are
// slow.
inline std::optional<Oracle> LoadOracle(const std::string& name) {
  const bool gguf = name.find("gguf/") == 0;
  const auto path = RefPath(gguf ? name + ".gguf" : name);
  const auto expected = RefPath(gguf ? name + ".expected.json" : name + "/expected.json");
  if (!path || !expected) return std::nullopt;
  Oracle oracle{*path, {}};
  const nlohmann::json file = ReadJson(*expected);
  for (const auto& entry : file.at("sequences")) {
    OracleSequence sequence;
    sequence.ids = entry["input_ids"].get<std::vector<int32_t>>();
    if (kSanitized && sequence.ids.size() > 64) continue;
    sequence.argmax = entry["argmax"].get<std::vector<int32_t>>();
    sequence.argmax_gap = entry["argmax_gap"].get<std::vector<float>>();
    sequence.greedy = entry["greedy"].get<std::vector<int32_t>>();
    sequence.greedy_gap = entry["greedy_gap"].get<std::vector<float>>();
    const auto logits = entry["last_logits"].get<std::vector<double>>();
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - max);
    for (double logit : logits) sequence.last_logprobs.push_back(static_cast<float>(logit - max - std::log(sum)));
    oracle.sequences.push_back(std::move(sequence));
  }
  return oracle;
}

}  // namespace quire::testing
