#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "kernels/base/philox.h"
#include "kernels/base/status_macros.h"
#include "kernels/op_checks.h"

namespace quire {
namespace {

// First number of candidates that top-p alone looks at; nearly always enough.
constexpr int64_t kFirstCandidates = 64;

bool IsGreedy(float temperature) { return temperature < kGreedyTemperature; }

// The logits behind masks and rules: `logits` itself if nothing changes them.
absl::Span<const float> AdjustLogits(absl::Span<const float> logits, const SampleRow& row, SamplingScratch* scratch) {
  const SampleExtras& extras = row.extras();
  const bool has_rules = extras.rules != nullptr && extras.rules->adjusts_logits();
  if (extras.banned_ids.empty() && extras.allowed_mask.empty() && !has_rules) return logits;
  std::vector<float>& copy = scratch->logits;
  copy.assign(logits.begin(), logits.end());
  if (!extras.allowed_mask.empty()) KeepAllowed(extras.allowed_mask, absl::MakeSpan(copy));
  for (const int32_t id : extras.banned_ids) copy[id] = kMinusInfinity;
  if (has_rules) {
    ApplyLogitRules(*extras.rules, extras.tokens, extras.prompt_len, absl::MakeSpan(copy), &scratch->rules);
  }
  return copy;
}

// Turns values of `candidates`, best first, into weights relative to the best one and cuts those below min_p.
void WeighCandidates(const SampleRow& row, std::vector<Candidate>* candidates) {
  const float max = candidates->front().value;
  for (Candidate& candidate : *candidates) {
    candidate.value = ExpNonPositive((candidate.value - max) / row.temperature);
  }
  while (candidates->back().value < row.min_p) candidates->pop_back();  // the first has weight 1
}

double SumOfWeights(absl::Span<const Candidate> candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.value;
  return sum;
}

// Keeps the shortest head whose weights reach `target`. False, with nothing changed, if all together do not.
bool CutTopP(double target, std::vector<Candidate>* candidates) {
  double sum = 0;
  for (size_t i = 0; i < candidates->size(); ++i) {
    sum += (*candidates)[i].value;
    if (sum < target) continue;
    candidates->resize(i + 1);
    return true;
  }
  return false;
}

// Survivors of top-p (and min-p) out of the whole vocabulary: best ids in growing numbers until they reach top_p.
void SelectTopP(absl::Span<const float> logits, float max, const SampleRow& row, TokenDistribution* distribution) {
  const double total = ExpWeights(logits, max, row.temperature, row.min_p, absl::MakeSpan(distribution->weights),
                                  absl::MakeSpan(distribution->block_sums));
  const int64_t vocab = static_cast<int64_t>(logits.size());
  for (int64_t k = std::min(kFirstCandidates, vocab);; k = std::min(8 * k, vocab)) {
    SelectTopK(logits, k, &distribution->sparse);
    const size_t selected = distribution->sparse.size();
    WeighCandidates(row, &distribution->sparse);
    const bool all = k == vocab || distribution->sparse.size() < selected;  // min-p or the vocabulary ended it
    if (CutTopP(row.top_p * total, &distribution->sparse) || all) return;
  }
}

void ComputeSparse(absl::Span<const float> logits, const MaxScan& scan, const SampleRow& row,
                   TokenDistribution* distribution) {
  std::vector<Candidate>& sparse = distribution->sparse;
  if (IsGreedy(row.temperature)) {
    sparse.assign(1, Candidate{1, scan.argmax});
  } else if (row.top_k > 0 && row.top_k < static_cast<int64_t>(logits.size())) {
    SelectTopK(logits, row.top_k, &sparse);
    WeighCandidates(row, &sparse);
    if (row.top_p < 1) CutTopP(row.top_p * SumOfWeights(sparse), &sparse);
  } else {
    SelectTopP(logits, scan.max, row, distribution);
  }
  std::sort(sparse.begin(), sparse.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  distribution->total = SumOfWeights(sparse);
}

// Temperature, min-p, top-k, top-p.
void Select(absl::Span<const float> logits, const MaxScan& scan, const SampleRow& row,
            TokenDistribution* distribution) {
  const bool top_k_off = row.top_k <= 0 || row.top_k >= static_cast<int64_t>(logits.size());
  distribution->is_sparse = IsGreedy(row.temperature) || !top_k_off || row.top_p < 1;
  if (distribution->is_sparse) return ComputeSparse(logits, scan, row, distribution);
  distribution->total = ExpWeights(logits, scan.max, row.temperature, row.min_p, absl::MakeSpan(distribution->weights),
                                   absl::MakeSpan(distribution->block_sums));
}

// The same with the rules' part: top-n-sigma, dynamic temperature, typical before and XTC behind, or mirostat.
void SelectByRules(absl::Span<const float> adjusted, MaxScan scan, const SampleRow& row, SamplingScratch* scratch) {
  const SamplingRules& rules = *row.extras().rules;
  TokenDistribution& distribution = scratch->distribution;
  if (adjusted.data() != scratch->logits.data()) scratch->logits.assign(adjusted.begin(), adjusted.end());
  const absl::Span<float> logits = absl::MakeSpan(scratch->logits);
  const absl::Span<float> weights = absl::MakeSpan(distribution.weights);
  const absl::Span<double> block_sums = absl::MakeSpan(distribution.block_sums);
  SampleRow plain = row;
  if (rules.top_n_sigma > 0) KeepWithinSigma(scan.max, rules.top_n_sigma, logits);
  if (rules.dynatemp_range > 0) {
    plain.temperature = DynamicTemperature(logits, scan.max, row.temperature, rules, weights, block_sums);
  }
  if (rules.mirostat_tau > 0 && !IsGreedy(plain.temperature)) {
    plain.min_p = 0, plain.top_k = 0, plain.top_p = 1;
    Select(logits, scan, plain, &distribution);
    CutSurprises(row.extras().mirostat_bound, &distribution);
    return;
  }
  if (rules.typical_p < 1 && !IsGreedy(plain.temperature)) {
    KeepTypical(scan.max, plain.temperature, rules.typical_p, logits, weights, block_sums, &scratch->candidates);
    scan = ScanMax(logits);
  }
  Select(logits, scan, plain, &distribution);
  const float chance = UniformFloat(row.seed, row.sequence_index, row.output_position, RandomPurpose::kXtc);
  if (chance < rules.xtc_probability) ExcludeTopChoices(rules.xtc_threshold, &distribution);
}

// Makes a sparse distribution one of the whole vocabulary.
void SpreadWeights(TokenDistribution* distribution) {
  std::fill(distribution->weights.begin(), distribution->weights.end(), 0.0f);
  for (const Candidate& candidate : distribution->sparse) distribution->weights[candidate.id] = candidate.value;
}

// The bound on surprises behind one: nearer to tau by a part of what it was off.
float NextBound(const SampleRow& row, const TokenDistribution& distribution, int32_t token_id) {
  const float bound = row.extras().mirostat_bound;
  if (IsGreedy(row.temperature)) return bound;
  const double surprise = -std::log2(ProbabilityOf(distribution, token_id));
  const SamplingRules& rules = *row.extras().rules;
  return static_cast<float>(bound - rules.mirostat_eta * (surprise - rules.mirostat_tau));
}

int32_t DrawSparse(const TokenDistribution& distribution, double target) {
  double sum = 0;
  for (const Candidate& candidate : distribution.sparse) {
    sum += candidate.value;
    if (sum > target) return candidate.id;
  }
  return distribution.sparse.back().id;
}

int32_t DrawDense(const TokenDistribution& distribution, double target) {
  // The block that takes the sum beyond the target, or by the chance of rounding the last one with any weight.
  int64_t block = 0;
  double sum = 0, sum_before = 0;
  for (size_t b = 0; b < distribution.block_sums.size() && sum <= target; ++b) {
    if (distribution.block_sums[b] == 0) continue;
    block = static_cast<int64_t>(b);
    sum_before = sum;
    sum += distribution.block_sums[b];
  }
  const int64_t begin = block * kWeightBlock;
  const int64_t end = std::min(begin + kWeightBlock, static_cast<int64_t>(distribution.weights.size()));
  int64_t chosen = begin;
  sum = sum_before;
  for (int64_t id = begin; id < end && sum <= target; ++id) {
    if (distribution.weights[id] == 0) continue;
    chosen = id;
    sum += distribution.weights[id];
  }
  return static_cast<int32_t>(chosen);
}

// Entries that a row may need among the log-probabilities.
int64_t MaxLogprobs(int32_t num_logprobs, int64_t vocab) {
  if (num_logprobs == SampleRow::kNoLogprobs) return 0;
  return 1 + (num_logprobs < 0 ? vocab : std::min<int64_t>(num_logprobs, vocab));
}

// All entries of a step must have an int32 index.
absl::Status CheckLogprobRoom(const SampleTokensParams& params) {
  int64_t entries = params.logprobs == nullptr ? 0 : static_cast<int64_t>(params.logprobs->size());
  for (const SampleRow& row : params.rows) entries += MaxLogprobs(row.num_logprobs, params.logits.cols);
  for (const ScoreRow& row : params.scores) entries += MaxLogprobs(row.num_logprobs, params.logits.cols);
  if (entries <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("SampleTokens: %d log-probabilities in one step, at most 2^31 - 1 are allowed", entries));
}

// Fills `entries` (of size MaxLogprobs) and the remaining fields of *result for its token: `logprob` gives that of a
// value in the order of `values`, [V].
template <typename Logprob>
void FillLogprobs(absl::Span<const float> values, Logprob logprob, absl::Span<TokenLogprob> entries,
                  std::vector<Candidate>* best, SampledToken* result) {
  const auto entry = [&](int32_t id, float value) { return TokenLogprob{id, static_cast<float>(logprob(value))}; };
  SelectTopK(values, static_cast<int64_t>(entries.size()) - 1, best);
  while (!best->empty() && logprob(best->back().value) == kMinusInfinity) best->pop_back();
  entries[0] = entry(result->token_id, values[result->token_id]);
  for (size_t i = 0; i < best->size(); ++i) entries[i + 1] = entry((*best)[i].id, (*best)[i].value);
  result->logprobs_count = static_cast<int32_t>(best->size()) + 1;
  result->rank = RankOf(values, result->token_id);
}

// Of the softmax of the logits, which are not bad.
void ReportLogprobs(absl::Span<const float> logits, float max, absl::Span<TokenLogprob> entries,
                    std::vector<Candidate>* best, SampledToken* result) {
  if (entries.empty()) return;
  const double log_sum = LogSumExp(logits, max);
  FillLogprobs(
      logits, [log_sum](float logit) { return logit - log_sum; }, entries, best, result);
}

bool Filters(const SampleRow& row) {
  const SamplingRules* rules = row.extras().rules;
  return row.min_p > 0 || row.top_k > 0 || row.top_p < 1 || (rules != nullptr && rules->shapes_distribution());
}

// Of what the token was drawn from.
void ReportProcessed(absl::Span<const float> raw, const SampleRow& row, absl::Span<TokenLogprob> entries,
                     SamplingScratch* scratch, SampledToken* result) {
  if (entries.empty()) return;
  std::vector<Candidate>* const best = &scratch->candidates;
  const TokenDistribution& distribution = scratch->distribution;
  if (IsGreedy(row.temperature) || !Filters(row)) {
    const absl::Span<const float> adjusted = AdjustLogits(raw, row, scratch);
    const float max = ScanMax(adjusted).max;
    if (IsGreedy(row.temperature)) return ReportLogprobs(adjusted, max, entries, best, result);
    const double log_total = std::log(distribution.total);
    const auto logprob = [&](float logit) { return (double{logit} - max) / row.temperature - log_total; };
    return FillLogprobs(adjusted, logprob, entries, best, result);
  }
  if (distribution.is_sparse) SpreadWeights(&scratch->distribution);
  const auto logprob = [&](float weight) { return std::log(weight / distribution.total); };
  FillLogprobs(distribution.weights, logprob, entries, best, result);
}

void SampleOne(absl::Span<const float> logits, const SampleRow& row, absl::Span<TokenLogprob> entries,
               SamplingScratch* scratch, SampledToken* result) {
  ComputeDistribution(logits, row, scratch);
  const TokenDistribution& distribution = scratch->distribution;
  result->bad_logits = distribution.bad_logits;
  if (result->bad_logits) return;
  const float uniform = UniformFloat(row.seed, row.sequence_index, row.output_position, RandomPurpose::kDraw);
  result->token_id = DrawToken(distribution, uniform);
  if (const SamplingRules* rules = row.extras().rules; rules != nullptr && rules->keeps_state()) {
    result->mirostat_bound = NextBound(row, distribution, result->token_id);
  }
  if (row.wants_processed_logprobs) {
    ReportProcessed(logits, row, entries, scratch, result);
  } else {
    ReportLogprobs(logits, distribution.raw_max, entries, &scratch->candidates, result);
  }
}

void ScoreOne(absl::Span<const float> logits, const ScoreRow& row, absl::Span<TokenLogprob> entries,
              SamplingScratch* scratch, SampledToken* result) {
  const MaxScan scan = ScanMax(logits);
  result->bad_logits = scan.bad || scan.argmax < 0;
  if (result->bad_logits) return;
  result->token_id = row.target_id;
  ReportLogprobs(logits, scan.max, entries, &scratch->candidates, result);
}

// Gives each row its room among the log-probabilities, so that rows can be filled in any order.
template <typename Row>
void AssignLogprobRoom(absl::Span<const Row> rows, int64_t vocab, absl::Span<SampledToken> results,
                       std::vector<TokenLogprob>* logprobs) {
  for (size_t i = 0; i < rows.size(); ++i) {
    results[i] = SampledToken{};
    const int64_t room = MaxLogprobs(rows[i].num_logprobs, vocab);
    if (room == 0) continue;
    results[i].logprobs_begin = static_cast<int32_t>(logprobs->size());
    logprobs->resize(logprobs->size() + room);
  }
}

}  // namespace

void ComputeDistribution(absl::Span<const float> logits, const SampleRow& row, SamplingScratch* scratch) {
  TokenDistribution& distribution = scratch->distribution;
  const MaxScan raw = ScanMax(logits);
  distribution.bad_logits = raw.bad || raw.argmax < 0;
  if (distribution.bad_logits) return;
  const absl::Span<const float> adjusted = AdjustLogits(logits, row, scratch);
  const MaxScan scan = adjusted.data() == logits.data() ? raw : ScanMax(adjusted);
  distribution.bad_logits = scan.bad || scan.argmax < 0;
  if (distribution.bad_logits) return;

  distribution.raw_max = raw.max;
  const int64_t vocab = static_cast<int64_t>(logits.size());
  distribution.weights.resize(vocab);
  distribution.block_sums.resize((vocab + kWeightBlock - 1) / kWeightBlock);
  const SamplingRules* rules = row.extras().rules;
  if (rules != nullptr && rules->shapes_distribution() && !IsGreedy(row.temperature)) {
    SelectByRules(adjusted, scan, row, scratch);
  } else {
    Select(adjusted, scan, row, &distribution);
  }
}

int32_t DrawToken(const TokenDistribution& distribution, float uniform) {
  const double target = uniform * distribution.total;
  return distribution.is_sparse ? DrawSparse(distribution, target) : DrawDense(distribution, target);
}

std::vector<double> FinalProbabilities(absl::Span<const float> logits, const SampleRow& row) {
  SamplingScratch scratch;
  ComputeDistribution(logits, row, &scratch);
  const TokenDistribution& distribution = scratch.distribution;
  if (distribution.bad_logits) return {};
  std::vector<double> probabilities(logits.size(), 0);
  if (distribution.is_sparse) {
    for (const Candidate& candidate : distribution.sparse) {
      probabilities[candidate.id] = candidate.value / distribution.total;
    }
  } else {
    for (size_t id = 0; id < logits.size(); ++id) probabilities[id] = distribution.weights[id] / distribution.total;
  }
  return probabilities;
}

absl::Status SampleTokens(const SampleTokensParams& params, ThreadPool& pool, absl::Span<SamplingScratch> scratch) {
  QUIRE_RETURN_IF_ERROR(CheckSampleTokens(params));
  QUIRE_RETURN_IF_ERROR(CheckLogprobRoom(params));
  const F32Matrix logits = params.logits.f32();
  AssignLogprobRoom(params.rows, logits.cols, params.sampled, params.logprobs);
  AssignLogprobRoom(params.scores, logits.cols, params.scored, params.logprobs);

  const auto row_of = [&](int32_t index) { return absl::Span<const float>(logits.row(index), logits.cols); };
  const auto room_of = [&](const SampledToken& result, int32_t num_logprobs) {
    const int64_t room = MaxLogprobs(num_logprobs, logits.cols);
    return room == 0 ? absl::Span<TokenLogprob>()
                     : absl::MakeSpan(params.logprobs->data() + result.logprobs_begin, room);
  };
  const int64_t num_sampled = static_cast<int64_t>(params.rows.size());
  const int64_t num_rows = num_sampled + static_cast<int64_t>(params.scores.size());
  pool.ParallelFor(num_rows, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) {
      if (i < num_sampled) {
        const SampleRow& row = params.rows[i];
        SampledToken& result = params.sampled[i];
        SampleOne(row_of(row.logits_row), row, room_of(result, row.num_logprobs), &scratch[thread], &result);
      } else {
        const ScoreRow& row = params.scores[i - num_sampled];
        SampledToken& result = params.scored[i - num_sampled];
        ScoreOne(row_of(row.logits_row), row, room_of(result, row.num_logprobs), &scratch[thread], &result);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace quire
