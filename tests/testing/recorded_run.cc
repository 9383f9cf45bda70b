#include "tests/testing/recorded_run.h"

#include "gtest/gtest.h"
#include "scheduler/trace/replay.h"
#include "tests/testing/sanitized.h"

namespace quire {

const bool kRecordByDefault = !testing::kSanitized;

BlockManagerOptions Recordable(BlockManagerOptions options) {
  if (options.chain_hash == &ChainHash) options.token_order = TokenPermutation({11, 12}, 17);
  return options;
}

RecordedRun::RecordedRun(const SchedulerOptions& options, const SequenceLimits& limits,
                         const BlockManagerOptions& blocks_options, BlockManager* blocks, Scheduler* scheduler)
    : blocks_(blocks),
      scheduler_(scheduler),
      options_(blocks_options),
      writer_({options, limits, blocks_options}, blocks_options.token_order, &bytes_),
      recorder_(blocks, blocks_options.token_order, &writer_) {
  blocks_->SetObserver(&recorder_);
  scheduler_->SetObserver(&recorder_);
}

std::string RecordedRun::Finish() {
  blocks_->SetObserver(nullptr);
  scheduler_->SetObserver(nullptr);
  finished_ = true;
  writer_.Finish();
  EXPECT_EQ(writer_.status(), absl::OkStatus());
  return bytes_.bytes();
}

RecordedRun::~RecordedRun() {
  if (finished_) return;
  const std::string bytes = Finish();
  // The run itself checks invariants.
  const auto report = VerifyTrace(bytes, {.check_invariants = false, .chain_hash = options_.chain_hash});
  if (!report.ok()) {
    ADD_FAILURE() << report.status();
    return;
  }
  EXPECT_TRUE(report->verified()) << report->damage << (report->difference ? report->difference->ToString() : "");
}

}  // namespace quire
