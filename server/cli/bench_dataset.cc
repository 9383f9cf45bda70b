#include "server/cli/bench_dataset.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace quire::cli {
namespace {

// Log-normal lengths, fitted so that the means hold after the filter.
struct LengthModel {
  double in_mu, in_sigma, out_mu, out_sigma;
};
constexpr LengthModel kShareGptLike = {4.634, 1.1, 5.495, 0.9};
constexpr LengthModel kAlpacaLike = {2.818, 0.5, 3.656, 0.9};
constexpr int kMinInput = 4, kMaxInput = 1024, kMaxTotal = 2048;
constexpr int kNumPrefixes = 10;  // of prefix-repetition

// std's distributions differ between libraries; its engine does not.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) {
    std::seed_seq sequence = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                              static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
    engine_.seed(sequence);
  }
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }
  double Normal() {  // Box-Muller
    const double u = Uniform(), v = Uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  }
  std::vector<uint32_t> Ids(int count, int32_t vocab_size) {
    std::vector<uint32_t> ids(count);
    for (uint32_t& id : ids) id = Below(static_cast<uint32_t>(vocab_size));
    return ids;
  }

 private:
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }  // (0, 1]

  std::mt19937_64 engine_;
};

absl::Status CheckLength(const char* option, int value, int limit, int least) {
  if (value >= least && value <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d; the model of this server allows %d to %d", option, value, least, limit));
}

// Prompts of one length behind prefixes that are used in turn.
absl::StatusOr<std::vector<BenchRequest>> Prefixed(const DatasetOptions& options, int num_prefixes, int prefix_len,
                                                   int input_len, int output_len, int count, uint64_t stream) {
  QUIRE_RETURN_IF_ERROR(CheckLength("--shared-prefix-len", prefix_len, options.max_model_len - 2, 0));
  QUIRE_RETURN_IF_ERROR(CheckLength("--input-len", input_len, options.max_model_len - prefix_len - 1, 1));
  QUIRE_RETURN_IF_ERROR(CheckLength("--output-len", output_len, options.max_model_len - prefix_len - input_len, 1));
  std::vector<std::vector<uint32_t>> prefixes;
  Random prefix_random(options.seed, 0);
  for (int i = 0; i < num_prefixes; ++i) prefixes.push_back(prefix_random.Ids(prefix_len, options.vocab_size));
  Random random(options.seed, stream + 1);
  std::vector<BenchRequest> requests(count);
  for (int i = 0; i < count; ++i) {
    requests[i].prompt = prefixes[i % num_prefixes];
    const std::vector<uint32_t> own = random.Ids(input_len, options.vocab_size);
    requests[i].prompt.insert(requests[i].prompt.end(), own.begin(), own.end());
    requests[i].output_len = output_len;
  }
  return requests;
}

absl::StatusOr<std::vector<BenchRequest>> LogNormal(const DatasetOptions& options, const LengthModel& model, int count,
                                                    uint64_t stream) {
  if (options.input_len || options.output_len || options.shared_prefix_len) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--input-len, --output-len and --shared-prefix-len: data set %s has its own", options.name));
  }
  const int max_total = std::min(kMaxTotal, static_cast<int>(options.max_model_len));
  if (max_total < 256) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--dataset %s needs a model of 256 tokens or more; this one has %d", options.name, options.max_model_len));
  }
  Random random(options.seed, stream + 1);
  std::vector<BenchRequest> requests;
  while (static_cast<int>(requests.size()) < count) {
    const double in = std::round(std::exp(model.in_mu + model.in_sigma * random.Normal()));
    const double out = std::round(std::exp(model.out_mu + model.out_sigma * random.Normal()));
    if (in < kMinInput || in > kMaxInput || out < 1 || in + out > max_total) continue;
    requests.push_back({random.Ids(static_cast<int>(in), options.vocab_size), static_cast<int32_t>(out)});
  }
  return requests;
}

}  // namespace

absl::StatusOr<std::vector<BenchRequest>> MakeDataset(const DatasetOptions& options, int count, uint64_t stream) {
  if (options.vocab_size < 1) return absl::InvalidArgumentError("the server reports no vocabulary");
  if (options.name == "random") {
    return Prefixed(options, 1, options.shared_prefix_len.value_or(0), options.input_len.value_or(128),
                    options.output_len.value_or(64), count, stream);
  }
  if (options.name == "prefix-repetition") {
    return Prefixed(options, kNumPrefixes, options.shared_prefix_len.value_or(256), options.input_len.value_or(256),
                    options.output_len.value_or(128), count, stream);
  }
  if (options.name == "sharegpt-like") return LogNormal(options, kShareGptLike, count, stream);
  if (options.name == "alpaca-like") return LogNormal(options, kAlpacaLike, count, stream);
  return absl::InvalidArgumentError(absl::StrFormat(
      "--dataset is %s; allowed are random, prefix-repetition, sharegpt-like, alpaca-like", options.name));
}

}  // namespace quire::cli
