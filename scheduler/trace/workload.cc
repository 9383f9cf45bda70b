#include "scheduler/trace/workload.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

// Beams cannot go other ways than they went; as much work are as many sequences that are sampled.
void MakeSampled(TraceWorkload::Request* request) {
  SamplingParams& params = request->request.params;
  size_t longest = 0;
  for (const std::vector<int32_t>& output : request->outputs) longest = std::max(longest, output.size());
  params.n = params.beam_width;
  params.beam_width = 0;
  params.ignore_eos = true;
  params.stop_token_ids.clear();
  params.max_tokens = static_cast<int32_t>(std::max<size_t>(1, longest));
  request->outputs.assign(params.n, std::vector<int32_t>(longest, 0));
}

}  // namespace

int64_t NumHostCopies(absl::Span<const BlockCopy> copies, const BlockManager& blocks) {
  return std::count_if(copies.begin(), copies.end(),
                       [&](const BlockCopy& copy) { return blocks.IsHost(copy.src) || blocks.IsHost(copy.dst); });
}

absl::StatusOr<TraceWorkload> ReadWorkload(absl::string_view bytes, const ReplayOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(TraceReader reader, TraceReader::Open(bytes, options.limits));
  TraceWorkload workload;
  workload.header = reader.header();
  TraceReplay replay(reader.header(), options);
  absl::flat_hash_map<uint64_t, size_t> numbers;  // of requests by handle in the trace, from 0
  size_t placed = 0;                              // requests whose arrival is known
  TraceRecord record;
  int64_t other_miss_reasons = 0, host_copies = 0;
  double host_copy_seconds = 0;
  for (;;) {
    const absl::Status read = reader.Next(&record);
    if (!read.ok()) break;
    QUIRE_RETURN_IF_ERROR(replay.Apply(record));
    if (const auto difference = replay.Compare(record, &other_miss_reasons)) {
      return absl::DataLossError("the trace does not replay: " + difference->ToString());
    }
    if (record.call == TraceCall::kAdd) {
      const auto origin = numbers.find(record.request.fork_of.handle);
      const uint64_t forked_from = origin == numbers.end() ? 0 : origin->second + 1;
      numbers[record.request.handle] = workload.requests.size();
      EngineRequest request = record.request;
      request.prompt_hashes = replay.HashPrompt(request);
      request.handle = workload.requests.size() + 1;
      request.fork_of.handle = forked_from;
      const int32_t num_sequences = std::max(request.params.n, request.params.beam_width);
      workload.requests.push_back({std::move(request), {}, std::vector<std::vector<int32_t>>(num_sequences)});
    }
    if (record.call == TraceCall::kCommit) host_copy_seconds += record.host_copy_seconds;
    if (record.call == TraceCall::kSchedule) {
      host_copies += NumHostCopies(record.plan.copies, replay.blocks());
      for (; placed < workload.requests.size(); ++placed) workload.requests[placed].arrival = record.now;
    }
    for (const SequenceOutput& event : replay.outputs().sequences) {
      const auto request = numbers.find(event.handle);
      if (request == numbers.end()) continue;
      if (event.token_id >= 0) {
        workload.requests[request->second].outputs[event.sequence_index].push_back(event.token_id);
      }
    }
    if (record.call == TraceCall::kEnd) {
      workload.complete = true;
      break;
    }
  }
  workload.requests.resize(placed);  // nothing was ever decided about the others
  for (TraceWorkload::Request& request : workload.requests) {
    if (request.request.params.beam_width > 0) MakeSampled(&request);
  }
  if (host_copies > 0) workload.host_copy_seconds = host_copy_seconds / static_cast<double>(host_copies);
  workload.step_time = replay.scheduler().step_time();
  workload.timed = workload.step_time.ready();
  return workload;
}

}  // namespace quire
