// Fixed work, of block manager and scheduler here, whose instructions tests/bench/instruction_count counts.
// usage: instruction_load NAME; without NAME it lists the names.
#include "tests/bench/instruction_load.h"

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "block_manager/block_pool.h"
#include "kernels/base/check.h"
#include "scheduler/batch_builder.h"
#include "scheduler/scheduler.h"
#include "tests/bench/decode_load.h"

// Instructions between entry and exit of this function are counted, and no others: callgrind knows it by its name.
extern "C" void QuireCounted(void (*work)(void*), void* context) {
  work(context);
  asm volatile("");  // no tail call: the function is left when the work is done
}

namespace quire {
namespace {

constexpr int32_t kBlockSize = 16;

void Pool() {
  struct NoCache : BlockPool::Cache {
    void OnUnused(BlockId) override {}
    void OnUsed(BlockId) override {}
    void Evict() override {}
  } no_cache;
  BlockPool pool(10'000, &no_cache);
  std::vector<BlockId> blocks(1'000);
  Count([&] {
    for (int i = 0; i < 20; ++i) {
      QUIRE_CHECK(pool.Allocate(absl::MakeSpan(blocks)).ok());
      for (const BlockId block : blocks) pool.Release(block);
    }
    for (int i = 0; i < 20'000; ++i) {
      BlockId block = kNullBlock;
      QUIRE_CHECK(pool.Allocate(absl::MakeSpan(&block, 1)).ok());
      pool.Release(block);
    }
  });
}

// Prompts of 2,048 tokens: published into a pool that holds three of them, so that old ones are evicted.
void Publish() {
  BlockManager blocks({.num_blocks = 400, .block_size = kBlockSize});
  std::vector<BlockCopy> copies;
  Numbers numbers;
  for (int i = 0; i < 24; ++i) {
    const EngineRequest request = MakeEngineRequest(numbers.Ids(2'048), {}, kBlockSize, {});
    PrefixKeys keys{request.root_hash, request.prompt_hashes};
    BlockTable table = blocks.NewTable();
    const auto publish = [&] {
      QUIRE_CHECK(blocks.Reserve(table, 2'048, &copies).ok());
      blocks.Publish(table, request.prompt_ids, 2'048, keys);
      table.Clear();
    };
    if (i < 4) {
      publish();
    } else {
      Count(publish);
    }
  }
}

void PrefixHit() {
  BlockManager blocks({.num_blocks = 1'000, .block_size = kBlockSize});
  const std::vector<int32_t> ids = Numbers().Ids(4'097);
  EngineRequest request = MakeEngineRequest(ids, {}, kBlockSize, {});
  PrefixKeys keys{request.root_hash, request.prompt_hashes};
  BlockTable table = blocks.NewTable();
  std::vector<BlockCopy> copies;
  QUIRE_CHECK(blocks.Reserve(table, 4'097, &copies).ok());
  blocks.Publish(table, ids, 4'097, keys);
  table.Clear();
  for (int i = 0; i < 20; ++i) {
    Count([&] {
      request = MakeEngineRequest(ids, {}, kBlockSize, {});
      blocks.MatchPrefix(keys, ids, 4'096, table);
    });
    QUIRE_CHECK(table.size() == 256);
    table.Clear();
  }
}

enum class Part { kSchedule, kBuild, kCommit };

void Decode(Part counted) {
  DecodeLoad load({.running = 256, .num_blocks = 256 * 40, .prompt_len = 256});
  BatchBuilder builder(kBlockSize, 1'024);
  const auto maybe_count = [counted](Part part, auto work) {
    if (part == counted) {
      Count(work);
    } else {
      work();
    }
  };
  load.Schedule();
  builder.Build(load.plan());
  load.Commit();
  for (int i = 0; i < 64; ++i) {
    maybe_count(Part::kSchedule, [&] { load.Schedule(); });
    maybe_count(Part::kBuild, [&] { builder.Build(load.plan()); });
    maybe_count(Part::kCommit, [&] { load.Commit(); });
  }
}
void DecodeSchedule() { Decode(Part::kSchedule); }
void DecodeBuild() { Decode(Part::kBuild); }
void DecodeCommit() { Decode(Part::kCommit); }

// Whole lives of requests in a pool that is too small for them: admission, chunks, hits, eviction, preemption, ends.
void Lives() {
  BlockManager blocks({.num_blocks = 300, .block_size = kBlockSize});
  Scheduler scheduler({.max_num_seqs = 32, .max_num_batched_tokens = 256},
                      {.max_model_len = 1'024, .eos_token_ids = {}}, &blocks);
  Numbers numbers;
  const std::vector<int32_t> shared = numbers.Ids(64);
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> prompt = i % 2 == 0 ? shared : std::vector<int32_t>();
    for (const int32_t id : numbers.Ids(1 + numbers.Below(200))) prompt.push_back(id);
    SamplingParams params;
    params.max_tokens = 1 + numbers.Below(120);
    params.n = 1 + (i % 8 == 0);
    requests.push_back(MakeEngineRequest(std::move(prompt), params, kBlockSize, {}));
    requests.back().handle = i;
  }
  Count([&] {
    SchedulePlan plan;
    StepResult result;
    StepOutputs outputs;
    for (EngineRequest& request : requests) QUIRE_CHECK(scheduler.Add(std::move(request)).ok());
    while (scheduler.HasWork()) {
      scheduler.Schedule(absl::UnixEpoch(), &plan, &outputs);
      result.samples.assign(plan.samples.size(), SampledToken{.token_id = 1});
      scheduler.Commit(plan, result, absl::UnixEpoch(), &outputs);
      outputs.sequences.clear();
    }
  });
  const SchedulerStats& stats = scheduler.stats();
  QUIRE_CHECK(stats.requests_finished == 200 && stats.preemptions > 0 && stats.prefix_hit_tokens > 0);
}

constexpr InstructionLoad kManagerLoads[] = {{"pool", &Pool},
                                             {"publish", &Publish},
                                             {"prefix_hit", &PrefixHit},
                                             {"decode_schedule", &DecodeSchedule},
                                             {"decode_build", &DecodeBuild},
                                             {"decode_commit", &DecodeCommit},
                                             {"lives", &Lives}};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  for (const auto loads : {absl::MakeConstSpan(quire::kManagerLoads), quire::ComputeLoads()}) {
    for (const quire::InstructionLoad& load : loads) {
      if (argc < 2) std::printf("%s\n", load.name.data());
      if (argc == 2 && argv[1] == load.name) return load.run(), 0;
    }
  }
  return argc < 2 ? 0 : 64;
}
