#include "tests/bench/decode_load.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/check.h"

namespace quire {

DecodeLoad::DecodeLoad(const Options& options)
    : options_(options),
      blocks_(
          {.num_blocks = options.num_blocks, .block_size = kBlockSize, .enable_prefix_cache = options.prefix_caching}),
      scheduler_({.max_num_seqs = options.running, .max_num_batched_tokens = 1 << 20},
                 {.max_model_len = 1 << 20, .eos_token_ids = {}}, &blocks_),
      max_steps_((blocks_.num_usable() * 99 / 100 / options.running - 1) * kBlockSize - options.prompt_len) {
  QUIRE_CHECK(max_steps_ >= 16);
  Restart();
}

void DecodeLoad::Restart() {
  const absl::Time now = absl::UnixEpoch();
  for (int32_t i = 0; num_requests_ > 0 && i < options_.running; ++i) {
    scheduler_.Abort(num_requests_ - i, now, &outputs_);
  }
  for (int32_t i = 0; i < options_.running; ++i) {
    std::vector<int32_t> prompt(options_.prompt_len, 2);
    prompt[0] = static_cast<int32_t>(++num_requests_ % 1'000'000);
    SamplingParams params;
    params.max_tokens = max_steps_ + 16;
    EngineRequest request = MakeEngineRequest(std::move(prompt), params, kBlockSize, {});
    request.handle = num_requests_;
    QUIRE_CHECK(scheduler_.Add(std::move(request)).ok());
  }
  for (steps_ = 0; steps_ < kWarmUp;) {
    Schedule();
    Commit();
  }
  QUIRE_CHECK(static_cast<int32_t>(plan_.samples.size()) == options_.running && plan_.num_tokens == options_.running);
}

void DecodeLoad::Schedule() { scheduler_.Schedule(absl::UnixEpoch(), &plan_, &outputs_); }

void DecodeLoad::Commit() {
  if (result_.samples.size() != plan_.samples.size()) {
    result_.samples.assign(plan_.samples.size(), SampledToken{.token_id = 1});
  }
  outputs_.sequences.clear();
  scheduler_.Commit(plan_, result_, absl::UnixEpoch(), &outputs_);
  ++steps_;
}

}  // namespace quire
