#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/engine.h"
#include "scheduler/output_ring.h"

namespace quire {

// Deals the events of a step out to the rings of their shards. Engine thread, but for ring() and StopWaiting().
class EngineOutputs {
 public:
  explicit EngineOutputs(int32_t num_shards);

  OutputRing& ring(int32_t shard) { return *rings_[shard]; }

  // Copies every event, with its log-probabilities, to the ring of its request. True if a full ring made it wait.
  bool Publish(const StepOutputs& outputs);
  void Close();

  // From any thread: Publish waits no more.
  void StopWaiting();

 private:
  std::vector<std::unique_ptr<OutputRing>> rings_;
  std::vector<StepOutputs*> open_;  // per shard: the slot being written, or null
};

}  // namespace quire
