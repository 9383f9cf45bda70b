#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "kernels/cuda/decode_plan.h"
#include "kernels/cuda/prefill_plan.h"
#include "kernels/ops.h"

namespace quire::cuda {

// The batch of a step, and how its attention is cut for each kind of layer that came so far. Host memory; kernels get
// copies (staging.h).
class CudaAttentionPlan : public AttentionPlan {
 public:
  // One window and head layout.
  struct Cut {
    int32_t window = 0, group = 0, target_splits = 0;
    DecodePlan decode;               // of a batch of one row a sequence
    int32_t num_splits = 0;          // of `decode`
    std::vector<PrefillTile> tiles;  // of any other
  };

  // `decodes`: whether the decode kernel may take batches of one row a sequence.
  void Begin(const AttentionBatch& batch, bool decodes);
  const AttentionBatch& batch() const { return batch_; }
  // One row a sequence, by the decode kernel.
  bool is_decode() const { return is_decode_; }
  // Stays where it is until the next Begin.
  const Cut& CutFor(int32_t window, int32_t group, int32_t target_splits);

 private:
  AttentionBatch batch_;
  bool is_decode_ = false;
  std::list<Cut> cuts_;  // the first num_cuts_ are of this batch; memory of the others is kept
  size_t num_cuts_ = 0;
};

}  // namespace quire::cuda
