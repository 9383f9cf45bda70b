#include "block_manager/integrity.h"

#include <utility>

namespace quire {

void IntegrityLog::Sealed(BlockId block, int32_t num_tokens) {
  blocks_[static_cast<int32_t>(block)].new_tokens = num_tokens;
  sealed_.push_back(block);
}

void IntegrityLog::Brought(BlockId block, int32_t num_tokens) {
  State& state = blocks_[static_cast<int32_t>(block)];
  state.brought_tokens = num_tokens;
  brought_.push_back(block);
}

void IntegrityLog::Found(BlockId block) {
  const State& state = blocks_[static_cast<int32_t>(block)];
  // What was sealed since the latest step that has completed has no checksum to compare with yet.
  if (state.new_tokens > 0 || state.brought_tokens > 0 || state.checksums_in_flight > 0) return;
  found_.push_back({block, state.checked_tokens});
}

void IntegrityLog::Failed(BlockId block, bool is_sealed) {
  State& state = blocks_[static_cast<int32_t>(block)];
  --state.checksums_in_flight;
  if (is_sealed && state.new_tokens == 0 && state.brought_tokens == 0) Sealed(block, state.checked_tokens);
}

void IntegrityLog::TakeItems(IntegrityWork* work) {
  work->checksums.clear();
  work->verify.swap(found_);
  found_.clear();
  work->poison.clear();
  for (const BlockId block : sealed_) {
    State& state = blocks_[static_cast<int32_t>(block)];
    if (state.new_tokens == 0) continue;
    work->checksums.push_back({block, state.new_tokens});
    state.checked_tokens = state.new_tokens;
    ++state.checksums_in_flight;
    state.new_tokens = 0;
  }
  sealed_.clear();
  for (const BlockId block : brought_) {
    State& state = blocks_[static_cast<int32_t>(block)];
    if (state.brought_tokens > 0) Sealed(block, std::exchange(state.brought_tokens, 0));
  }
  brought_.clear();
}

}  // namespace quire
