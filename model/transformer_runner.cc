#include "model/transformer_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/batch_check.h"
#include "model/kv_integrity.h"
#include "model/transformer.h"
#include "model/weight_source.h"

namespace quire {
namespace {

absl::Status NoIntegrity(const Backend& backend) {
  return absl::UnimplementedError(absl::StrFormat(
      "the integrity mode reads KV blocks as the host's, device %s keeps its own", Name(backend.kind())));
}

class TransformerRunner : public ModelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(TransformerRunnerOptions options);

  absl::Status Submit(const ForwardBatch& batch) override {
    QUIRE_CHECK(!in_flight_);
    QUIRE_RETURN_IF_ERROR(CheckBatch(batch, limits_));
    if (!batch.integrity.empty() && !backend_->host_reads_memory()) return NoIntegrity(*backend_);
    backend_->ops().ResetTimes();
    QUIRE_RETURN_IF_ERROR(Run(batch));
    result_.times = backend_->ops().times();
    in_flight_ = true;
    return absl::OkStatus();
  }

  absl::Status Wait(StepResult* result) override {
    QUIRE_CHECK(in_flight_);
    in_flight_ = false;
    std::swap(*result, result_);
    return absl::OkStatus();
  }

  absl::Status broken() const override { return backend_->broken(); }
  int32_t vocab_size() const override { return config_.vocab_size; }
  int32_t num_kv_blocks() const override { return kv_->num_blocks(); }
  int32_t block_size() const override { return kv_->block_size(); }
  int32_t num_host_blocks() const override { return kv_->num_host_blocks(); }
  std::vector<int32_t> group_windows() const override { return groups_.windows(); }
  int64_t weight_bytes_per_step() const override { return model_->weight_bytes_per_step(); }
  int64_t kv_bytes_per_token() const override { return kv_->bytes_per_token(); }
  std::string Describe() const override { return backend_->Describe(); }

 private:
  explicit TransformerRunner(TransformerRunnerOptions options) : backend_(std::move(options.backend)) {}

  absl::Status Run(const ForwardBatch& batch);
  absl::Status WarmUp();

  ModelConfig config_;
  LayerGroups groups_;
  std::unique_ptr<Backend> backend_;  // outlives what it allocated and packed
  std::unique_ptr<Transformer> model_;
  std::optional<KvCache> kv_;
  std::optional<KvIntegrity> integrity_;
  BatchLimits limits_;
  StepResult result_;
  bool in_flight_ = false;
};

#ifdef NDEBUG
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif

absl::Status CheckOption(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %d, allowed is %d to %d", name, value, min, max));
}

absl::StatusOr<std::unique_ptr<ModelRunner>> TransformerRunner::Create(TransformerRunnerOptions options) {
  QUIRE_CHECK(options.backend != nullptr);
  QUIRE_RETURN_IF_ERROR(CheckOption("max_num_batched_tokens", options.max_num_batched_tokens, 1, 1 << 20));
  QUIRE_RETURN_IF_ERROR(CheckOption("max_num_seqs", options.max_num_seqs, 1, 65536));
  const std::string path = options.model_path;
  const bool random = options.random_weights, group_layers = options.group_layers, shadow_kv = options.shadow_kv;
  const bool check_host_copies = options.check_host_copies || kDebugBuild;
  const int32_t num_host_blocks = options.num_host_blocks;
  const uint64_t seed = options.seed;
  const int32_t num_blocks = options.num_kv_blocks, block_size = options.block_size;
  const int32_t max_tokens = options.max_num_batched_tokens, max_seqs = options.max_num_seqs;
  const std::optional<DType> given_kv_dtype = options.kv_dtype;

  std::unique_ptr<TransformerRunner> runner(new TransformerRunner(std::move(options)));
  Backend& backend = *runner->backend_;
  if (shadow_kv && !backend.host_reads_memory()) return NoIntegrity(backend);
  QUIRE_ASSIGN_OR_RETURN(runner->config_, LoadModelConfig(path));
  const ModelConfig& config = runner->config_;
  const DType kv_dtype = given_kv_dtype.value_or(backend.default_kv_dtype(config.dtype));
  runner->groups_ = group_layers ? GroupLayers(config) : OneGroup(config);
  const LayerGroups& groups = runner->groups_;
  std::unique_ptr<WeightSource> weights;
  if (random) {
    weights = CreateRandomWeightSource(config, seed);
  } else {
    QUIRE_ASSIGN_OR_RETURN(weights, OpenWeightSource(path, config));
  }
  QUIRE_ASSIGN_OR_RETURN(runner->model_, Transformer::Load(backend, config, groups, *weights, max_tokens));
  QUIRE_ASSIGN_OR_RETURN(runner->kv_,
                         KvCache::Create(backend, config, groups, num_blocks, block_size, kv_dtype, num_host_blocks));
  runner->integrity_.emplace(&*runner->kv_, shadow_kv, check_host_copies);
  runner->limits_ = {max_tokens, max_seqs, config.vocab_size, num_blocks, block_size, groups.size(), num_host_blocks};
  QUIRE_RETURN_IF_ERROR(runner->WarmUp());
  return std::unique_ptr<ModelRunner>(std::move(runner));
}

absl::Status TransformerRunner::Run(const ForwardBatch& batch) {
  QUIRE_RETURN_IF_ERROR(integrity_->BeforeCopies(batch.integrity));
  const double before = backend_->ops().times().other;
  QUIRE_RETURN_IF_ERROR(integrity_->CopyBlocks(backend_->ops(), batch.block_copies));
  const auto is_host = [this](const BlockCopyIds& copy) { return std::max(copy.src, copy.dst) >= kv_->num_blocks(); };
  const bool with_host = std::any_of(batch.block_copies.begin(), batch.block_copies.end(), is_host);
  result_.host_copy_seconds = with_host ? backend_->ops().times().other - before : 0;
  integrity_->AfterCopies(batch);
  QUIRE_RETURN_IF_ERROR(model_->Forward(batch, *kv_, &result_));
  return integrity_->AfterStep(batch);
}

// A few tokens into the null block, then one more: a prefill and a decode step. What is left there is never read.
absl::Status TransformerRunner::WarmUp() {
  const int32_t positions = std::min({kv_->block_size(), limits_.max_tokens + 1, config_.max_position_embeddings});
  std::vector<int32_t> ids(positions, 0), steps(positions);
  std::iota(steps.begin(), steps.end(), 0);  // position and slot at once
  const std::vector<int32_t> table = {0};
  std::vector<GroupTables> more_groups(groups_.size() - 1);
  const SampleRow greedy, drawn{.temperature = 1, .top_p = 0.5f};
  StepResult result;
  for (int32_t begin : {0, positions - 1}) {
    const int32_t end = begin == 0 ? std::max(positions - 1, 1) : positions;
    const std::vector<int32_t> cu_q_lens = {0, end - begin}, context_lens = {end};
    const std::vector<SampleRow> samples = {greedy, drawn};
    ForwardBatch batch;
    batch.token_ids = absl::MakeConstSpan(ids).subspan(begin, end - begin);
    batch.positions = absl::MakeConstSpan(steps).subspan(begin, end - begin);
    batch.slot_mapping = batch.positions;
    batch.cu_q_lens = cu_q_lens;
    batch.context_lens = context_lens;
    batch.block_tables = table;
    batch.block_table_stride = 1;
    std::fill(more_groups.begin(), more_groups.end(), batch.group(0));
    batch.more_groups = more_groups;
    batch.samples = samples;
    QUIRE_RETURN_IF_ERROR(Submit(batch));
    QUIRE_RETURN_IF_ERROR(Wait(&result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> CreateTransformerRunner(TransformerRunnerOptions options) {
  return TransformerRunner::Create(std::move(options));
}

}  // namespace quire
