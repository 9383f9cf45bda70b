#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/block.h"
#include "block_manager/retention.h"
#include "model/sampling_params.h"
#include "model/token_constraint.h"

namespace quire {

// A sequence of another request that begins as this one does. It saves work and changes nothing else: as long as that
// sequence runs, its blocks are shared as far as the tokens agree, with or without the prefix cache.
struct ForkOrigin {
  uint64_t handle = 0;  // 0: none
  int32_t sequence_index = 0;
};

// A request as the engine takes it: validated, tokenised, with the keys of its prompt's full blocks. Made by
// MakeEngineRequest, so that the hashing happens on the caller's thread.
struct EngineRequest {
  uint64_t handle = 0;                   // unique for the life of the process; what outputs and Abort speak of
  std::vector<int32_t> prompt_ids;       // 1 .. max_model_len - 1, each in the vocabulary
  std::vector<BlockHash> prompt_hashes;  // one per full block of the prompt
  BlockHash root_hash;                   // parent of the first block: everything that KeyContext says
  SamplingParams params;
  // Structured output: where the output begins in what it may be; null: it may be anything. `is_constrained` says which
  // to those who decide without it, as a replay does; Engine::Submit sets it.
  std::shared_ptr<const TokenConstraint> constraint;
  bool is_constrained = false;
  int32_t priority = 0;  // lower runs first (unlike retention); equal priorities are first come first served
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time arrival;  // when the front end took it
  ForkOrigin fork_of;
  // What the prefix cache may do for it. Retention priorities run the other way than `priority`: higher stays longer.
  int32_t tenant = 0;  // whose cache quota its blocks count for; 0: nobody's
  bool reads_cache = true, writes_cache = true;
  Retention retention = {};
  std::string tenant_name;  // whose share it counts against (scheduling policy `fair`); empty is one of them
  bool offline = false;     // takes what online requests leave, and yields to them within a step
  // Wishes, for scheduling policy `deadline`: time to the first token, and from one token to the next.
  absl::Duration ttft_target = absl::InfiniteDuration();
  absl::Duration tpot_target = absl::InfiniteDuration();
};

// `context` names everything but tokens that K and V depend on. `block_size` as in EngineInfo.
EngineRequest MakeEngineRequest(std::vector<int32_t> prompt_ids, SamplingParams params, int32_t block_size,
                                const KeyContext& context);

}  // namespace quire
