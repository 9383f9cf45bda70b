#include "tests/testing/sim_loop.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"

namespace quire {

namespace {

BlockManagerOptions BlocksOf(const SimLoopOptions& options) {
  const BlockManagerOptions blocks = {.num_blocks = options.num_blocks,
                                      .block_size = options.block_size,
                                      .enable_prefix_cache = options.scheduler.enable_prefix_caching};
  return options.record ? Recordable(blocks) : blocks;
}

SequenceLimits LimitsOf(const SimLoopOptions& options) {
  return {.max_model_len = options.max_model_len, .eos_token_ids = {}};
}

}  // namespace

SimLoop::SimLoop(const SimLoopOptions& loop_options)
    : options(loop_options),
      blocks(BlocksOf(options)),
      scheduler(options.scheduler, LimitsOf(options), &blocks),
      random_(options.seed) {
  if (options.record) record.emplace(options.scheduler, LimitsOf(options), BlocksOf(options), &blocks, &scheduler);
}

uint64_t SimLoop::Add(const SimRequest& request) {
  const uint64_t handle = ++num_requests_;
  const uint64_t text = request.prompt_seed < 0 ? handle + (uint64_t{1} << 40) : request.prompt_seed;
  std::mt19937_64 ids(text);
  std::vector<int32_t> prompt(request.prompt_len);
  for (int32_t& id : prompt) id = static_cast<int32_t>(ids() % 50000);
  SamplingParams params;
  params.max_tokens = request.max_tokens;
  params.ignore_eos = true;
  EngineRequest out = MakeEngineRequest(std::move(prompt), params, options.block_size, {});
  out.handle = handle;
  out.priority = request.priority;
  out.tenant_name = request.tenant;
  out.offline = request.offline;
  out.arrival = now;
  if (request.deadline != absl::InfiniteDuration()) out.deadline = now + request.deadline;
  out.ttft_target = request.ttft_target;
  out.tpot_target = request.tpot_target;
  SimSeen seen;
  seen.request = request;
  seen.arrival = now;
  seen_.emplace(handle, seen);
  EXPECT_EQ(scheduler.Add(std::move(out)), absl::OkStatus());
  return handle;
}

double SimLoop::Step() {
  scheduler.Schedule(now, &plan, &outputs);
  Collect();
  parts_.clear();
  for (const ScheduledSequence& entry : plan.sequences) {
    parts_.push_back({entry.sequence->group->request.handle, entry.num_tokens});
  }
  if (plan.empty()) return 0;
  EXPECT_LE(plan.num_tokens, options.scheduler.max_num_batched_tokens);
  double seconds = options.cost.Of(plan.load);
  if (options.noise > 0) {
    std::normal_distribution<double> normal(1, options.noise);
    seconds *= std::clamp(normal(random_), 0.5, 2.0);
  }
  now += absl::Seconds(seconds);
  result_.samples.assign(plan.samples.size(), SampledToken{.token_id = 1});
  result_.scores.clear();
  scheduler.Commit(plan, result_, now, &outputs, seconds);
  Collect();
  return seconds;
}

void SimLoop::RunAll(int32_t max_steps) {
  for (int32_t step = 0; scheduler.HasWork(); ++step) {
    ASSERT_LT(step, max_steps) << "no end in sight";
    Step();
  }
  EXPECT_EQ(scheduler.CheckInvariants(), absl::OkStatus());
}

void SimLoop::Collect() {
  for (const SequenceOutput& event : outputs.sequences) {
    SimSeen& seen = seen_.at(event.handle);
    EXPECT_FALSE(seen.finished());
    if (event.token_id >= 0 && seen.tokens++ == 0) seen.first_token = now;
    if (!event.request_finished) continue;
    seen.end = now;
    seen.last_event = event;
  }
  outputs.sequences.clear();
  outputs.logprobs.clear();
}

const SimPart* SimLoop::PartOf(uint64_t handle) const {
  const auto found =
      std::find_if(parts_.begin(), parts_.end(), [handle](const SimPart& part) { return part.handle == handle; });
  return found == parts_.end() ? nullptr : &*found;
}

}  // namespace quire
