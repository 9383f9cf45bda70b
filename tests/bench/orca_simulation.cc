#include "tests/bench/orca_simulation.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"
#include "tests/bench/buddy_allocator.h"

namespace quire {
namespace {

constexpr int32_t kWarmUp = 10;  // the first 1 / kWarmUp of the trace

// Sums of what one step shows.
struct Sample {
  int64_t running = 0, tokens = 0, future = 0, never = 0;
};

int32_t FinalTokens(const cli::BenchRequest& request) {
  return static_cast<int32_t>(request.prompt.size()) + request.output_len - 1;
}

class Meter {
 public:
  Meter(size_t num_requests, int32_t num_slots) : num_requests_(num_requests), num_slots_(num_slots) {}

  // `num_admitted`: requests that have ever been, this step's included.
  void Add(const Sample& sample, size_t num_admitted) {
    if (num_admitted < num_requests_ / kWarmUp || num_admitted == num_requests_) return;
    if (steps_++ == 0) first_admitted_ = num_admitted;
    last_admitted_ = num_admitted;
    sum_.running += sample.running;
    sum_.tokens += sample.tokens;
    sum_.future += sample.future;
    sum_.never += sample.never;
  }

  OrcaResult Result(std::string policy) const {
    QUIRE_CHECK(steps_ > 1 && sum_.running > 0);
    const double slots = static_cast<double>(steps_) * num_slots_;
    OrcaResult result;
    result.policy = std::move(policy);
    result.steps = steps_;
    result.running = static_cast<double>(sum_.running) / static_cast<double>(steps_);
    result.length = static_cast<double>(sum_.tokens) / static_cast<double>(sum_.running);
    result.tokens = static_cast<double>(sum_.tokens) / slots;
    result.future = static_cast<double>(sum_.future) / slots;
    result.never = static_cast<double>(sum_.never) / slots;
    result.unused = 1 - result.tokens - result.future - result.never;
    result.requests_per_step = static_cast<double>(last_admitted_ - first_admitted_) / static_cast<double>(steps_ - 1);
    return result;
  }

 private:
  const size_t num_requests_;
  const int32_t num_slots_;
  int64_t steps_ = 0;
  size_t first_admitted_ = 0, last_admitted_ = 0;
  Sample sum_;
};

int32_t ReservedSlots(Reservation reservation, const cli::BenchRequest& request, int32_t max_len) {
  const auto prompt_len = static_cast<int32_t>(request.prompt.size());
  switch (reservation) {
    case Reservation::kMax:
      return max_len;
    case Reservation::kPowerOfTwo:
      return std::min(max_len, prompt_len + static_cast<int32_t>(std::bit_ceil(uint32_t(request.output_len))));
    case Reservation::kOracle:
      return prompt_len + request.output_len;
  }
  return max_len;
}

const char* Name(Reservation reservation) {
  switch (reservation) {
    case Reservation::kMax:
      return "max";
    case Reservation::kPowerOfTwo:
      return "power of two";
    case Reservation::kOracle:
      return "oracle";
  }
  return "";
}

}  // namespace

OrcaResult SimulateReservation(Reservation reservation, absl::Span<const cli::BenchRequest> trace,
                               const OrcaOptions& options) {
  struct Running {
    const cli::BenchRequest* request;
    int32_t first_slot;
    int32_t stored;  // tokens
  };
  BuddyAllocator slots(options.num_slots);
  Meter meter(trace.size(), options.num_slots);
  std::vector<Running> running;
  size_t next = 0;
  while (next < trace.size()) {
    for (; next < trace.size(); ++next) {
      const auto first = slots.Allocate(ReservedSlots(reservation, trace[next], options.max_len));
      if (!first.has_value()) break;
      running.push_back({&trace[next], *first, static_cast<int32_t>(trace[next].prompt.size()) - 1});
    }
    QUIRE_CHECK(!running.empty());
    Sample sample;
    for (Running& sequence : running) {
      ++sequence.stored;
      const int32_t final_tokens = FinalTokens(*sequence.request);
      ++sample.running;
      sample.tokens += sequence.stored;
      sample.future += final_tokens - sequence.stored;
      sample.never += slots.size(sequence.first_slot) - final_tokens;
    }
    meter.Add(sample, next);
    std::erase_if(running, [&slots](const Running& sequence) {
      if (sequence.stored < FinalTokens(*sequence.request)) return false;
      slots.Free(sequence.first_slot);
      return true;
    });
  }
  return meter.Result(Name(reservation));
}

OrcaResult SimulatePaged(absl::Span<const cli::BenchRequest> trace, const OrcaOptions& options) {
  constexpr int32_t kQueued = 64, kUnbounded = 1 << 16;
  BlockManager blocks({.num_blocks = options.num_slots / options.block_size + 1, .block_size = options.block_size});
  Scheduler scheduler({.max_num_seqs = kUnbounded / 16, .max_num_batched_tokens = kUnbounded},
                      {.max_model_len = options.max_len, .eos_token_ids = {}}, &blocks);
  Meter meter(trace.size(), options.num_slots);
  OrcaResult paged;
  const absl::Time now = absl::UnixEpoch();
  SchedulePlan plan;
  StepResult result;
  StepOutputs outputs;
  size_t next = 0;
  int64_t computed = 0, needed = 0;
  int32_t used = 0;  // blocks, in the step before
  while (next < trace.size() || scheduler.HasWork()) {
    while (next < trace.size() && scheduler.stats().requests_waiting < kQueued) {
      SamplingParams params;
      params.max_tokens = trace[next].output_len;
      params.ignore_eos = true;
      EngineRequest request =
          MakeEngineRequest({trace[next].prompt.begin(), trace[next].prompt.end()}, params, options.block_size, {});
      request.handle = next;
      QUIRE_CHECK(scheduler.Add(std::move(request)).ok());
      needed += FinalTokens(trace[next]);
      ++next;
    }
    scheduler.Schedule(now, &plan, &outputs);
    QUIRE_CHECK(!plan.empty());
    if (paged.preemptions == 0 && scheduler.stats().preemptions > 0) {
      paged.use_at_first_preemption = static_cast<double>(used) / blocks.num_usable();
    }
    paged.preemptions = scheduler.stats().preemptions;
    used = blocks.stats().active;

    Sample sample;
    for (const ScheduledSequence& entry : plan.sequences) {
      const int32_t stored = entry.start + entry.num_tokens;
      const int32_t kept = entry.sequence->table.size() * options.block_size;
      const int32_t final_tokens = FinalTokens(trace[entry.sequence->group->request.handle]);
      ++sample.running;
      sample.tokens += stored;
      sample.future += std::min(kept, final_tokens) - stored;
      sample.never += std::max(0, kept - final_tokens);
      computed += entry.num_tokens;
    }
    // Preempted requests wait as well, so this count is low by them: it only sets the window.
    meter.Add(sample, next - scheduler.stats().requests_waiting);

    result.samples.assign(plan.samples.size(), SampledToken{.token_id = 1});
    scheduler.Commit(plan, result, now, &outputs);
    outputs.sequences.clear();
  }
  const int64_t preemptions = paged.preemptions;
  const double use = paged.use_at_first_preemption;
  paged = meter.Result("paged");
  paged.preemptions = preemptions;
  paged.use_at_first_preemption = use;
  paged.recomputed = static_cast<double>(computed - needed) / static_cast<double>(needed);
  return paged;
}

}  // namespace quire
