#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/engine.h"
#include "scheduler/output_ring.h"

namespace quire {

// What the engine has to say to the readers of its output shards: events gather in one place and are dealt out to the
// ring of handle % num_shards. Engine thread, but for what says otherwise.
class EngineOutputs {
 public:
  explicit EngineOutputs(int32_t num_shards);

  OutputRing& ring(int32_t shard) { return *rings_[shard]; }

  // Where events are appended.
  StepOutputs* gathered() { return &gathered_; }
  // Appends the handles of requests that a gathered event ends.
  void CollectFinished(std::vector<uint64_t>* handles) const;
  // Hands the gathered events over; waits for rings that are full.
  void Publish();
  void Close();

  // From any thread: Publish waits no more.
  void StopWaiting();
  // From any thread: how often Publish had to wait.
  int64_t num_waits() const;

 private:
  void DealOut();

  std::vector<std::unique_ptr<OutputRing>> rings_;
  StepOutputs gathered_;
  std::vector<StepOutputs> dealt_;  // per shard; unused if there is one
};

}  // namespace quire
