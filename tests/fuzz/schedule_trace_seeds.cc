// schedule_trace_seeds FOLDER: writes records of short busy runs there, seeds of schedule_trace_fuzz.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

std::string RecordRun(HarnessOptions options, int32_t seed) {
  options.record = true;
  SchedulerHarness run(options);
  for (int32_t i = 0; i < 6; ++i) {
    const uint64_t handle = run.Add(Ids(10 + 9 * i, (seed + i) % 3), Tokens(6 + i, 1 + i % 2), i % 3);
    run.Step();
    if (i == seed % 6) run.Abort(handle);
    if (i == 4) run.blocks.DropPrefix(RootHash(run.context), Ids(8, 1));
  }
  while (run.Step()) {
  }
  return run.record->Finish();
}

void WriteSeeds(const std::string& folder) {
  const HarnessOptions kRuns[] = {
      {},
      {.num_blocks = 24, .max_num_batched_tokens = 64},
      {.num_blocks = 24, .max_num_batched_tokens = 64, .num_host_blocks = 30},
      {.max_plans_in_flight = 2},
      {.num_blocks = 60, .max_num_seqs = 4, .group_windows = {0, 24}},
      {.prefix_caching = false, .eviction = EvictionPolicy::kLru},
  };
  int32_t number = 0;
  for (const HarnessOptions& run : kRuns) {
    const std::string bytes = RecordRun(run, number);
    std::ofstream(folder + "/" + std::to_string(number++), std::ios::binary) << bytes;
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 64;
  }
  quire::WriteSeeds(argv[1]);
  return 0;
}
