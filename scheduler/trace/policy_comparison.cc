#include "scheduler/trace/policy_comparison.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "absl/container/flat_hash_map.h"

namespace quire {
namespace {

constexpr double kIdleSeconds = 1e-3;  // passed over when there is work and yet no plan

Percentiles Summarize(std::vector<double> values) {
  Percentiles out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.9), at(0.99)};
}

BlockManagerOptions BlocksOf(const TraceWorkload& workload, const ComparisonOptions& options) {
  BlockManagerOptions blocks = workload.header.blocks;
  if (!options.num_blocks.has_value()) return blocks;
  const int32_t usable = *options.num_blocks;
  if (blocks.group_windows.empty()) {
    blocks.num_blocks = usable + 1;
  } else {
    const double per_page = static_cast<double>(blocks.num_blocks) / blocks.num_pages;
    blocks.num_pages = usable + 1;
    blocks.num_blocks = std::max(2, static_cast<int32_t>(per_page * blocks.num_pages));
  }
  return blocks;
}

SchedulerOptions SchedulerOf(const TraceWorkload& workload, const ComparisonOptions& options) {
  SchedulerOptions scheduler = workload.header.scheduler;
  scheduler.policy = options.policy;
  scheduler.max_plans_in_flight = 1;
  return scheduler;
}

class Simulation {
 public:
  Simulation(const TraceWorkload& workload, const ComparisonOptions& options)
      : workload_(workload),
        blocks_(BlocksOf(workload, options)),
        scheduler_(SchedulerOf(workload, options), workload.header.limits, &blocks_) {}

  PolicyOutcome Run();

 private:
  struct Seen {
    const TraceWorkload::Request* request = nullptr;
    std::vector<int32_t> given;          // tokens by sequence
    std::vector<absl::Time> last_token;  // by sequence
    std::vector<int32_t> computed;       // most leading tokens ever computed, by sequence
    absl::Time first_token = absl::InfiniteFuture();
    double gap_seconds = 0;
    int64_t gaps = 0;
  };

  void Arrive();
  void Step();
  void Account();
  void Answer();
  void Collect();
  void End(const Seen& seen, const SequenceOutput& last);
  double StepSeconds() const;
  double Fairness() const;

  const TraceWorkload& workload_;
  BlockManager blocks_;
  Scheduler scheduler_;
  SchedulePlan plan_;
  StepResult result_;
  StepOutputs outputs_;
  absl::Time now_;
  size_t next_ = 0;                              // the next to arrive
  absl::flat_hash_map<uint64_t, Seen> live_;     // by handle
  std::map<std::string, int64_t> live_tenants_;  // requests
  PolicyOutcome outcome_;
  std::vector<double> ttft_, itl_, e2e_;
  std::map<std::string, std::vector<double>> tenant_ttft_;
};

PolicyOutcome Simulation::Run() {
  if (workload_.requests.empty()) return outcome_;
  const absl::Time begin = now_ = workload_.requests[0].arrival;
  while (next_ < workload_.requests.size() || scheduler_.HasWork()) {
    if (!scheduler_.HasWork()) now_ = std::max(now_, workload_.requests[next_].arrival);
    Arrive();
    if (scheduler_.HasWork()) Step();
  }
  const SchedulerStats& stats = scheduler_.stats();
  outcome_.seconds = absl::ToDoubleSeconds(now_ - begin);
  outcome_.ttft = Summarize(ttft_);
  outcome_.itl = Summarize(itl_);
  outcome_.e2e = Summarize(e2e_);
  for (auto& [name, tenant] : outcome_.tenants) tenant.ttft = Summarize(tenant_ttft_[name]);
  outcome_.steps = stats.steps;
  outcome_.prompt_tokens = stats.prompt_tokens;
  outcome_.output_tokens = stats.generation_tokens;
  outcome_.preemptions = stats.preemptions;
  outcome_.hit_rate = stats.prefix_query_tokens == 0 ? 0
                                                     : static_cast<double>(stats.prefix_hit_tokens) /
                                                           static_cast<double>(stats.prefix_query_tokens);
  outcome_.fairness = Fairness();
  return outcome_;
}

void Simulation::Arrive() {
  for (; next_ < workload_.requests.size() && workload_.requests[next_].arrival <= now_; ++next_) {
    const TraceWorkload::Request& request = workload_.requests[next_];
    EngineRequest copy = request.request;
    ++outcome_.requests;
    PolicyOutcome::Tenant& tenant = outcome_.tenants[copy.tenant_name];
    ++tenant.requests;
    if (!scheduler_.Add(std::move(copy)).ok()) {
      ++outcome_.refused;
      continue;
    }
    const size_t n = request.outputs.size();
    live_[next_ + 1] = {&request, std::vector<int32_t>(n), std::vector<absl::Time>(n), std::vector<int32_t>(n)};
    ++live_tenants_[request.request.tenant_name];
  }
}

double Simulation::StepSeconds() const {
  const StepLoad& load = plan_.load;
  if (workload_.timed) return std::max(1e-6, workload_.step_time.Predict(load));
  return 4e-3 + 20e-6 * static_cast<double>(load.prefill_tokens) + 100e-6 * static_cast<double>(load.decode_rows);
}

void Simulation::Step() {
  scheduler_.Schedule(now_, &plan_, &outputs_);
  Collect();
  if (plan_.empty()) {
    now_ += absl::Seconds(kIdleSeconds);
    return;
  }
  result_.host_copy_seconds = workload_.host_copy_seconds * static_cast<double>(NumHostCopies(plan_.copies, blocks_));
  const double seconds = StepSeconds() + result_.host_copy_seconds;
  now_ += absl::Seconds(seconds);
  Account();
  Answer();
  scheduler_.Commit(plan_, result_, now_, &outputs_, seconds);
  Collect();
}

// What the step computes, for whom, and what of it for the second time.
void Simulation::Account() {
  const bool contended = live_tenants_.size() > 1;
  for (const ScheduledSequence& entry : plan_.sequences) {
    const EngineRequest& request = entry.sequence->group->request;
    if (contended) outcome_.tenants[request.tenant_name].contended_tokens += entry.num_tokens;
    const auto seen = live_.find(request.handle);
    if (seen == live_.end()) continue;
    int32_t& computed = seen->second.computed[entry.sequence->index];
    const int32_t end = entry.start + entry.num_tokens;
    outcome_.recomputed_tokens += std::max(0, std::min(computed, end) - entry.start);
    computed = std::max(computed, end);
  }
}

// The tokens that the sequences gave when they were recorded.
void Simulation::Answer() {
  result_.samples.assign(plan_.samples.size(), SampledToken{.token_id = 0});
  result_.scores.assign(plan_.scores.size(), {});
  plan_.ForEachSample([this](const Sequence& sequence, int32_t sample, int32_t num_drafts) {
    const auto seen = live_.find(sequence.group->request.handle);
    if (seen == live_.end()) return;
    const std::vector<int32_t>& output = seen->second.request->outputs[sequence.index];
    for (const int32_t end = sample + num_drafts; sample <= end; ++sample) {
      const uint32_t position = plan_.samples[sample].output_position;
      if (position < output.size()) result_.samples[sample].token_id = output[position];
    }
  });
}

void Simulation::Collect() {
  // Aborts give events too, which are looked at in the same loop.
  for (size_t i = 0; i < outputs_.sequences.size(); ++i) {
    const SequenceOutput event = outputs_.sequences[i];
    const auto found = live_.find(event.handle);
    if (found == live_.end()) continue;
    Seen& seen = found->second;
    const int32_t s = event.sequence_index;
    if (event.token_id >= 0) {
      if (seen.first_token == absl::InfiniteFuture()) seen.first_token = now_;
      if (seen.given[s]++ > 0) {
        const double gap = absl::ToDoubleSeconds(now_ - seen.last_token[s]);
        itl_.push_back(gap);
        seen.gap_seconds += gap;
        ++seen.gaps;
      }
      seen.last_token[s] = now_;
    }
    if (event.request_finished) {
      End(seen, event);
      live_.erase(found);
      continue;
    }
    const size_t length = std::max<size_t>(1, seen.request->outputs[s].size());
    const bool at_end = event.token_id >= 0 && static_cast<size_t>(seen.given[s]) >= length;
    if (at_end && event.finish_reason == FinishReason::kNone) {
      scheduler_.AbortSequence(event.handle, s, now_, &outputs_);
    }
  }
  outputs_.prompt_scores.clear();
  outputs_.sequences.clear();
  outputs_.logprobs.clear();
}

void Simulation::End(const Seen& seen, const SequenceOutput& last) {
  const EngineRequest& request = seen.request->request;
  const auto tenant_left = live_tenants_.find(request.tenant_name);
  if (--tenant_left->second == 0) live_tenants_.erase(tenant_left);
  const absl::Duration ttft = seen.first_token - seen.request->arrival;
  if (seen.first_token != absl::InfiniteFuture()) {
    ttft_.push_back(absl::ToDoubleSeconds(ttft));
    tenant_ttft_[request.tenant_name].push_back(ttft_.back());
  }
  if (last.finish_reason == FinishReason::kError) {
    ++outcome_.failed;
    return;
  }
  ++outcome_.completed;
  ++outcome_.tenants[request.tenant_name].completed;
  e2e_.push_back(absl::ToDoubleSeconds(now_ - seen.request->arrival));
  const double tpot = seen.gaps == 0 ? 0 : seen.gap_seconds / static_cast<double>(seen.gaps);
  outcome_.good +=
      now_ <= request.deadline && ttft <= request.ttft_target && absl::Seconds(tpot) <= request.tpot_target;
}

double Simulation::Fairness() const {
  double sum = 0, squares = 0;
  int64_t n = 0;
  for (const auto& [name, tenant] : outcome_.tenants) {
    double weight = 1;
    for (const auto& [of, w] : workload_.header.scheduler.tenant_weights) {
      if (of == name) weight = w;
    }
    const double share = static_cast<double>(tenant.contended_tokens) / weight;
    sum += share;
    squares += share * share;
    ++n;
  }
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(n) * squares);
}

}  // namespace

PolicyOutcome SimulatePolicy(const TraceWorkload& workload, const ComparisonOptions& options) {
  return Simulation(workload, options).Run();
}

}  // namespace quire
