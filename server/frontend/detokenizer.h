#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/engine.h"
#include "server/frontend/live_requests.h"

namespace quire {

// Reads one output queue of the engine and feeds the sinks of its requests: the only code between a step and a client.
// Once running, it alone touches the streams of its requests. Never blocks but for the queue itself.
class Detokenizer {
 public:
  // What to do when a request's sink has had its end; called before the end is delivered.
  using OnEnd = std::function<void(LiveRequest& live, const absl::Status& status)>;

  // All must outlive the detokenizer.
  Detokenizer(Engine& engine, int32_t shard, LiveRequests& live, OnEnd on_end);

  // Until the engine has ended and everything was read.
  void Run();

 private:
  LiveRequest* Find(uint64_t handle);
  void Process(const StepOutputs& outputs);
  void Deliver(LiveRequest& live);

  Engine& engine_;
  const int32_t shard_;
  LiveRequests& live_;
  const OnEnd on_end_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<LiveRequest>> known_;  // from the first event to the last
  std::vector<LiveRequest*> touched_;                                  // by the step in hand
};

}  // namespace quire
