#include "model/sim_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/sampling.h"
#include "kernels/sim/step_time.h"

namespace quire {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
uint64_t Mix(uint64_t a, uint64_t b) { return Mix(a ^ Mix(b)); }

constexpr uint64_t kRoot = 0x5149524551554952;

// Ratio of the probabilities of neighbouring ranks.
constexpr double kRatio = 0.9;
// A sampled token is among this many best ids.
constexpr int32_t kSampledRanks = 64;
// Every fingerprint at a position of this residue, and the last one, enter a row's digest: one in each block of at
// least that many tokens, whatever the block size.
constexpr int32_t kDigestStride = 8;
// Of block copies to and from the host: about PCIe 4.
constexpr double kHostBytesPerSecond = 20e9;

// How one row's vocabulary is ordered: rank r (0-based) is id (first + r) mod V.
struct RankedVocabulary {
  int32_t first = 0;
  int32_t vocab_size = 0;

  int32_t IdOf(int32_t rank) const { return static_cast<int32_t>((int64_t{first} + rank) % vocab_size); }
  int32_t RankOf(int32_t id) const { return id >= first ? id - first : id - first + vocab_size; }
  float LogProb(int32_t rank) const {
    const double log_total = std::log1p(-std::pow(kRatio, vocab_size));
    return static_cast<float>(rank * std::log(kRatio) + std::log1p(-kRatio) - log_total);
  }
};

class SimRunner : public ModelRunner {
 public:
  explicit SimRunner(const SimRunnerOptions& options)
      : options_(options),
        // calloc: pages of a large pool that nobody writes are never touched.
        fingerprints_(static_cast<uint64_t*>(std::calloc(
            (int64_t{options.num_kv_blocks} + options.num_host_blocks) * options.block_size, sizeof(uint64_t)))) {}
  ~SimRunner() override { std::free(fingerprints_); }

  bool allocated() const { return fingerprints_ != nullptr; }

  absl::Status Submit(const ForwardBatch& batch) override {
    QUIRE_RETURN_IF_ERROR(CheckBatch(batch));
    batch_ = &batch;
    for (const BlockCopyIds& copy : batch.block_copies) {
      std::copy_n(&fingerprints_[int64_t{copy.src} * options_.block_size], options_.block_size,
                  &fingerprints_[int64_t{copy.dst} * options_.block_size]);
    }
    for (int32_t g = 0; g < batch.num_groups(); ++g) {
      for (size_t s = 0; s < batch.context_lens.size(); ++s) StoreSequence(batch.group(g), window(g), s);
    }
    return absl::OkStatus();
  }

  absl::Status Wait(StepResult* result) override {
    QUIRE_CHECK(batch_ != nullptr);
    result->samples.clear();
    result->scores.clear();
    result->logprobs.clear();
    for (const SampleRow& row : batch_->samples) {
      if (row.extras().rules != nullptr || row.wants_processed_logprobs) {
        QUIRE_RETURN_IF_ERROR(SampleByRules(row, result));
      } else {
        Sample(row, result);
      }
    }
    for (const ScoreRow& row : batch_->scores) {
      result->scores.push_back(Report(Vocabulary(row.logits_row), row.target_id, row.num_logprobs, result));
    }
    SpendTime(result);
    batch_ = nullptr;
    return absl::OkStatus();
  }

  int32_t vocab_size() const override { return options_.config.vocab_size; }
  int32_t num_kv_blocks() const override { return options_.num_kv_blocks; }
  int32_t block_size() const override { return options_.block_size; }
  int32_t num_host_blocks() const override { return options_.num_host_blocks; }
  std::vector<int32_t> group_windows() const override { return options_.group_windows; }
  int64_t weight_bytes_per_step() const override { return 0; }
  int64_t kv_bytes_per_token() const override {
    const ModelConfig& config = options_.config;
    return int64_t{2} * config.num_layers * config.num_kv_heads * config.head_dim * SizeOf(DType::kF16);
  }
  std::string Describe() const override { return "sim"; }

 private:
  absl::Status CheckBatch(const ForwardBatch& batch) const {
    const size_t num_tokens = batch.token_ids.size(), num_sequences = batch.context_lens.size();
    bool agree = batch.positions.size() == num_tokens && batch.tokens_from_samples.empty() &&
                 batch.cu_q_lens.size() == num_sequences + 1 && batch.cu_q_lens.front() == 0 &&
                 batch.cu_q_lens.back() == static_cast<int32_t>(num_tokens) &&
                 batch.num_groups() == static_cast<int32_t>(options_.group_windows.size());
    for (int32_t g = 0; agree && g < batch.num_groups(); ++g) {
      const GroupTables group = batch.group(g);
      agree = group.slot_mapping.size() == num_tokens &&
              group.block_tables.size() >= num_sequences * group.block_table_stride;
    }
    if (!agree) {
      return absl::InvalidArgumentError(absl::StrCat("batch of ", num_tokens, " tokens and ", num_sequences,
                                                     " sequences: its arrays disagree in size"));
    }
    for (const BlockCopyIds& copy : batch.block_copies) {
      const int32_t last = options_.num_kv_blocks + options_.num_host_blocks - 1;
      if (std::min(copy.src, copy.dst) < 1 || std::max(copy.src, copy.dst) > last) {
        return absl::InvalidArgumentError(
            absl::StrCat("block copy ", copy.src, " -> ", copy.dst, " outside 1 .. ", last));
      }
    }
    for (int32_t g = 0; g < batch.num_groups(); ++g) {
      for (size_t s = 0; s < num_sequences; ++s) {
        QUIRE_RETURN_IF_ERROR(CheckSequence(batch, batch.group(g), window(g), s));
      }
    }
    for (const SampleRow& row : batch.samples) QUIRE_RETURN_IF_ERROR(CheckRow(row.logits_row, num_tokens));
    for (const ScoreRow& row : batch.scores) QUIRE_RETURN_IF_ERROR(CheckRow(row.logits_row, num_tokens));
    return absl::OkStatus();
  }

  absl::Status CheckSequence(const ForwardBatch& batch, const GroupTables& group, int32_t window, size_t s) const {
    const int32_t begin = batch.cu_q_lens[s], end = batch.cu_q_lens[s + 1], context = batch.context_lens[s];
    const int64_t blocks = (int64_t{context} + options_.block_size - 1) / options_.block_size;
    if (begin >= end || context < end - begin || blocks > group.block_table_stride) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", s, ": rows ", begin, " .. ", end, ", context ",
                                                     context, ", block table of ", group.block_table_stride));
    }
    for (int64_t i = FirstSeen(context - (end - begin), window) / options_.block_size; i < blocks; ++i) {
      const int32_t block = group.block_tables[s * group.block_table_stride + i];
      if (!IsBlock(block)) {
        return absl::InvalidArgumentError(absl::StrCat("sequence ", s, ": block ", i, " of its table is ", block));
      }
    }
    for (int32_t row = begin; row < end; ++row) {
      const int32_t position = context - (end - row);
      if (batch.positions[row] != position || group.slot_mapping[row] != Slot(group, s, position)) {
        return absl::InvalidArgumentError(
            absl::StrCat("row ", row, " of sequence ", s, ": position ", batch.positions[row], " in slot ",
                         group.slot_mapping[row], ", want position ", position, " in slot ", Slot(group, s, position)));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckRow(int32_t row, size_t num_tokens) {
    if (row >= 0 && row < static_cast<int32_t>(num_tokens)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("logits_row ", row, " of a batch of ", num_tokens, " tokens"));
  }

  bool IsBlock(int32_t block) const { return block > 0 && block < options_.num_kv_blocks; }

  int32_t window(int32_t group) const { return options_.group_windows[group]; }

  // The first position that a row at `position` sees.
  static int32_t FirstSeen(int32_t position, int32_t window) {
    return window > 0 ? std::max(0, position - window + 1) : 0;
  }

  int32_t Slot(const GroupTables& group, size_t s, int32_t position) const {
    const int32_t block = group.block_tables[s * group.block_table_stride + position / options_.block_size];
    return block * options_.block_size + position % options_.block_size;
  }

  void StoreSequence(const GroupTables& group, int32_t window, size_t s) {
    for (int32_t row = batch_->cu_q_lens[s]; row < batch_->cu_q_lens[s + 1]; ++row) {
      const int32_t position = batch_->positions[row];
      const bool is_first = FirstSeen(position, window) == position;
      const uint64_t before = is_first ? kRoot : fingerprints_[Slot(group, s, position - 1)];
      fingerprints_[group.slot_mapping[row]] = Mix(before, Mix(batch_->token_ids[row], position));
    }
  }

  // Of everything the row sees through its block tables.
  uint64_t Digest(int32_t row) const {
    const auto after = std::upper_bound(batch_->cu_q_lens.begin(), batch_->cu_q_lens.end(), row);
    const size_t s = after - batch_->cu_q_lens.begin() - 1;
    const int32_t last = batch_->positions[row];
    uint64_t digest = 0;
    for (int32_t g = 0; g < batch_->num_groups(); ++g) {
      const GroupTables group = batch_->group(g);
      const uint64_t own = fingerprints_[Slot(group, s, last)];
      digest = g == 0 ? own : Mix(digest, own);
      const int32_t first = FirstSeen(last, window(g)) / kDigestStride * kDigestStride;
      for (int32_t position = first + kDigestStride - 1; position < last; position += kDigestStride) {
        digest = Mix(digest, fingerprints_[Slot(group, s, position)]);
      }
    }
    return digest;
  }

  RankedVocabulary Vocabulary(int32_t row) const {
    return {static_cast<int32_t>(Digest(row) % vocab_size()), vocab_size()};
  }

  // Rules, and log-probabilities of what is drawn from, are as of real logits.
  absl::Status SampleByRules(const SampleRow& row, StepResult* result) {
    const RankedVocabulary vocabulary = Vocabulary(row.logits_row);
    logits_.resize(vocab_size());
    for (int32_t id = 0; id < vocab_size(); ++id) logits_[id] = vocabulary.LogProb(vocabulary.RankOf(id));
    SampleRow only = row;
    only.logits_row = 0;
    SampleTokensParams params;
    params.logits = F32Matrix(logits_.data(), 1, vocab_size());
    params.rows = {&only, 1};
    params.sampled = {&result->samples.emplace_back(), 1};
    params.logprobs = &result->logprobs;
    return SampleTokens(params, pool_, {&scratch_, 1});
  }

  void Sample(const SampleRow& row, StepResult* result) {
    const RankedVocabulary vocabulary = Vocabulary(row.logits_row);
    int32_t rank = 0;
    if (row.temperature > 0) {
      const uint64_t draw =
          Mix(Mix(vocabulary.first, row.seed), (uint64_t{row.sequence_index} << 32) | row.output_position);
      rank = static_cast<int32_t>(draw % std::min(kSampledRanks, vocab_size()));
    }
    const auto banned = [&extras = row.extras()](int32_t id) {
      const absl::Span<const uint32_t> mask = extras.allowed_mask;
      if (!mask.empty() && (mask[id / 32] >> (id % 32) & 1) == 0) return true;
      return std::find(extras.banned_ids.begin(), extras.banned_ids.end(), id) != extras.banned_ids.end();
    };
    int32_t tried = 0;
    while (tried < vocab_size() && banned(vocabulary.IdOf(rank))) rank = (rank + 1) % vocab_size(), ++tried;
    if (tried == vocab_size()) {
      result->samples.push_back({.bad_logits = true});
      return;
    }
    result->samples.push_back(Report(vocabulary, vocabulary.IdOf(rank), row.num_logprobs, result));
  }

  // The chosen id, with the log-probabilities asked for appended to the result.
  static SampledToken Report(const RankedVocabulary& vocabulary, int32_t id, int32_t num_logprobs, StepResult* result) {
    SampledToken token{.token_id = id};
    if (num_logprobs == SampleRow::kNoLogprobs) return token;
    const int32_t rank = vocabulary.RankOf(id);
    const int32_t num_best = num_logprobs < 0 ? vocabulary.vocab_size : std::min(num_logprobs, vocabulary.vocab_size);
    token.rank = rank + 1;
    token.logprobs_begin = static_cast<int32_t>(result->logprobs.size());
    token.logprobs_count = 1 + num_best;
    result->logprobs.push_back({id, vocabulary.LogProb(rank)});
    for (int32_t r = 0; r < num_best; ++r) result->logprobs.push_back({vocabulary.IdOf(r), vocabulary.LogProb(r)});
    return token;
  }

  void SpendTime(StepResult* result) const {
    result->times = {};
    result->host_copy_seconds = 0;
    if (options_.time_scale <= 0) return;
    int64_t prefill_tokens = 0, decode_rows = 0, kv_tokens = 0;
    for (size_t s = 0; s < batch_->context_lens.size(); ++s) {
      const int32_t rows = batch_->cu_q_lens[s + 1] - batch_->cu_q_lens[s];
      (rows == 1 ? decode_rows : prefill_tokens) += rows;
      kv_tokens += batch_->context_lens[s];
    }
    const auto is_host = [this](const BlockCopyIds& copy) {
      return std::max(copy.src, copy.dst) >= options_.num_kv_blocks;
    };
    const int64_t host_bytes = std::count_if(batch_->block_copies.begin(), batch_->block_copies.end(), is_host) *
                               options_.block_size * kv_bytes_per_token() /
                               static_cast<int64_t>(options_.group_windows.size());
    result->host_copy_seconds = options_.time_scale * static_cast<double>(host_bytes) / kHostBytesPerSecond;
    const double seconds = options_.time_scale * StepTimeModel().Seconds(prefill_tokens, decode_rows, kv_tokens) +
                           result->host_copy_seconds;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    result->times.other = seconds;
  }

  SimRunnerOptions options_;
  uint64_t* fingerprints_;               // [num_kv_blocks * block_size]
  const ForwardBatch* batch_ = nullptr;  // in flight
  // For rows with rules.
  ThreadPool pool_{1};
  SamplingScratch scratch_;
  std::vector<float> logits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> CreateSimRunner(const SimRunnerOptions& options) {
  if (options.config.vocab_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("vocab_size ", options.config.vocab_size, ", want at least 1"));
  }
  const int64_t all_blocks = int64_t{options.num_kv_blocks} + options.num_host_blocks;
  if (options.block_size < 1 || options.num_kv_blocks < 2 || options.num_host_blocks < 0 ||
      all_blocks > std::numeric_limits<int32_t>::max() / options.block_size) {
    return absl::InvalidArgumentError(absl::StrCat("num_kv_blocks ", options.num_kv_blocks, " and num_host_blocks ",
                                                   options.num_host_blocks, " of block_size ", options.block_size,
                                                   ": want at least 2 blocks, at most 2^31 - 1 slots"));
  }
  if (options.group_windows.empty()) return absl::InvalidArgumentError("group_windows is empty, want at least one");
  if (!(options.time_scale >= 0) || !std::isfinite(options.time_scale)) {
    return absl::InvalidArgumentError(absl::StrCat("time_scale ", options.time_scale, ", want 0 or more"));
  }
  auto runner = std::make_unique<SimRunner>(options);
  if (!runner->allocated()) {
    return absl::ResourceExhaustedError(absl::StrCat("fingerprints of ", all_blocks * options.block_size, " slots"));
  }
  return runner;
}

}  // namespace quire
