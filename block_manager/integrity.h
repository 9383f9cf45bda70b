#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block.h"

namespace quire {

// What the owner of the memory does for the integrity mode before a step writes anything: `checksums` and `verify` in
// this order before the step's copies, `poison` after them. If the step fails, none of it may have been done. With
// layer groups all these blocks are pages.
struct IntegrityWork {
  struct Item {
    BlockId block = kNullBlock;
    int32_t num_tokens = 0;  // its first tokens; what lies behind them may hold anything
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::vector<Item> checksums;  // became findable: keep a checksum of the contents
  std::vector<Item> verify;     // were found: must still have the checksum that was kept for as many tokens
  std::vector<BlockId> poison;  // were in use and are free: fill with what nobody must read

  bool empty() const { return checksums.empty() && verify.empty() && poison.empty(); }
};

// Collects that work. Debug aid: Take is O(blocks).
class IntegrityLog {
 public:
  explicit IntegrityLog(int32_t num_blocks) : blocks_(num_blocks) {}

  void Sealed(BlockId block, int32_t num_tokens);
  // As Sealed, but a copy of the plan being made brings the contents: the checksum is kept with the plan after.
  void Brought(BlockId block, int32_t num_tokens);
  void Unsealed(BlockId block) {
    State& state = blocks_[static_cast<int32_t>(block)];
    state.new_tokens = state.brought_tokens = 0;
  }
  void Found(BlockId block);
  // The step that had the work has completed, or failed: then the checksum of `block` may be missing, and the next plan
  // asks for it again if the block is still sealed.
  void Completed(BlockId block) { --blocks_[static_cast<int32_t>(block)].checksums_in_flight; }
  void Failed(BlockId block, bool is_sealed);
  void HandedOut(BlockId block) { blocks_[static_cast<int32_t>(block)].dirty = true; }

  // Fills *work with all that came up since the last time. `is_free` says of a block whether nobody holds or finds it.
  template <typename IsFree>
  void Take(IsFree is_free, IntegrityWork* work) {
    TakeItems(work);
    for (int32_t i = 1; i < static_cast<int32_t>(blocks_.size()); ++i) {
      if (!blocks_[i].dirty || !is_free(BlockId{i})) continue;
      blocks_[i].dirty = false;
      work->poison.push_back(BlockId{i});
    }
  }

 private:
  struct State {
    int32_t checked_tokens = 0;       // that the kept checksum covers
    int32_t new_tokens = 0;           // sealed since the last Take; 0: not
    int32_t brought_tokens = 0;       // brought since the last Take; 0: not
    int32_t checksums_in_flight = 0;  // steps that are to take one
    bool dirty = false;               // handed out since it was last poisoned
  };
  void TakeItems(IntegrityWork* work);

  std::vector<State> blocks_;
  std::vector<BlockId> sealed_;   // since the last Take, each perhaps unsealed again
  std::vector<BlockId> brought_;  // likewise
  std::vector<IntegrityWork::Item> found_;
};

}  // namespace quire
