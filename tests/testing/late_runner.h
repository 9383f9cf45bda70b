#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/model_runner.h"

namespace quire::testing {

// Makes of a runner that takes one step at a time one that takes two and answers one step late, as a device does. A
// step is run when it is waited for, which is as late as can be; tokens that the step before samples are filled in
// here. Fails a step whose batch was changed while it was in flight.
class LateRunner : public ModelRunner {
 public:
  explicit LateRunner(std::unique_ptr<ModelRunner> runner) : runner_(std::move(runner)) {}

  int32_t max_steps_in_flight() const override { return 2; }

  absl::Status Submit(const ForwardBatch& batch) override {
    QUIRE_CHECK(num_in_flight_ < 2);
    ++num_submitted_;
    if (num_submitted_ == fail_submit_at) return absl::InternalError("refused");
    num_overlapped_ += num_in_flight_ == 1;
    num_late_tokens_ += static_cast<int64_t>(batch.tokens_from_samples.size());
    in_flight_[num_in_flight_++] = {&batch, Fingerprint(batch)};
    return absl::OkStatus();
  }

  absl::Status Wait(StepResult* result) override {
    QUIRE_CHECK(num_in_flight_ > 0);
    const InFlight step = std::exchange(in_flight_[0], in_flight_[1]);
    --num_in_flight_;
    absl::Status status = RunStep(step, result);
    // If it failed, the tokens may be any.
    last_samples_.assign(step.batch->samples.size(), SampledToken{.token_id = 0});
    if (status.ok()) last_samples_ = result->samples;
    return status;
  }

  int32_t vocab_size() const override { return runner_->vocab_size(); }
  int32_t num_kv_blocks() const override { return runner_->num_kv_blocks(); }
  int32_t num_host_blocks() const override { return runner_->num_host_blocks(); }
  int32_t block_size() const override { return runner_->block_size(); }
  std::vector<int32_t> group_windows() const override { return runner_->group_windows(); }
  int64_t weight_bytes_per_step() const override { return runner_->weight_bytes_per_step(); }
  int64_t kv_bytes_per_token() const override { return runner_->kv_bytes_per_token(); }
  std::string Describe() const override { return runner_->Describe(); }

  // Steps submitted while another was in flight, and rows whose token that one sampled.
  int64_t num_overlapped() const { return num_overlapped_; }
  int64_t num_late_tokens() const { return num_late_tokens_; }

  int64_t fail_submit_at = 0;  // the number of a Submit that fails; 0: none

 private:
  struct InFlight {
    const ForwardBatch* batch = nullptr;
    size_t fingerprint = 0;
  };

  static size_t Fingerprint(const ForwardBatch& batch) {
    size_t sum = absl::HashOf(batch.token_ids, batch.positions, batch.cu_q_lens, batch.context_lens);
    for (int32_t g = 0; g < batch.num_groups(); ++g) {
      sum = absl::HashOf(sum, batch.group(g).slot_mapping, batch.group(g).block_tables);
    }
    for (const TokenFromSample& token : batch.tokens_from_samples) sum = absl::HashOf(sum, token.row, token.sample);
    for (const BlockCopyIds& copy : batch.block_copies) sum = absl::HashOf(sum, copy.src, copy.dst);
    for (const SampleRow& row : batch.samples) sum = absl::HashOf(sum, row.logits_row, row.extras().banned_ids);
    for (const ScoreRow& row : batch.scores) sum = absl::HashOf(sum, row.logits_row, row.target_id);
    return sum;
  }

  absl::Status RunStep(const InFlight& step, StepResult* result) {
    const ForwardBatch& batch = *step.batch;
    if (Fingerprint(batch) != step.fingerprint) return absl::InternalError("the batch was changed in flight");
    token_ids_.assign(batch.token_ids.begin(), batch.token_ids.end());
    for (const TokenFromSample& token : batch.tokens_from_samples) {
      if (batch.token_ids[token.row] != 0 || token.sample >= static_cast<int32_t>(last_samples_.size())) {
        return absl::InternalError("no such sample in the step before");
      }
      token_ids_[token.row] = std::max(0, last_samples_[token.sample].token_id);
    }
    resolved_ = batch;
    resolved_.token_ids = token_ids_;
    resolved_.tokens_from_samples = {};
    QUIRE_RETURN_IF_ERROR(runner_->Submit(resolved_));
    return runner_->Wait(result);
  }

  std::unique_ptr<ModelRunner> runner_;
  InFlight in_flight_[2];
  int32_t num_in_flight_ = 0;
  std::vector<SampledToken> last_samples_;
  std::vector<int32_t> token_ids_;
  ForwardBatch resolved_;
  int64_t num_submitted_ = 0, num_overlapped_ = 0, num_late_tokens_ = 0;
};

}  // namespace quire::testing
