#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/engine.h"
#include "scheduler/output_ring.h"

namespace quire {

// What the engine has to say to the readers of its output shards: events gather in one StepOutputs a shard, and go into
// the shard's ring together. Engine thread, but for ring() and StopWaiting().
class EngineOutputs {
 public:
  explicit EngineOutputs(int32_t num_shards);

  OutputRing& ring(int32_t shard) { return *rings_[shard]; }

  // Where events are gathered: those of a request in shard handle % size.
  absl::Span<StepOutputs* const> pending() { return pending_pointers_; }
  // Appends the handles of requests that a gathered event ends.
  void CollectFinished(std::vector<uint64_t>* handles) const;
  // Hands the gathered events over. True if a full ring made it wait.
  bool Publish();
  void Close();

  // From any thread: Publish waits no more.
  void StopWaiting();

 private:
  std::vector<std::unique_ptr<OutputRing>> rings_;
  std::vector<StepOutputs> pending_;
  std::vector<StepOutputs*> pending_pointers_;
};

}  // namespace quire
