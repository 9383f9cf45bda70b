#include "scheduler/request.h"

#include <utility>

#include "kernels/base/check.h"

namespace quire {

EngineRequest MakeEngineRequest(std::vector<int32_t> prompt_ids, SamplingParams params, int32_t block_size,
                                const KeyContext& context) {
  QUIRE_CHECK(block_size >= 1);
  EngineRequest request;
  request.root_hash = RootHash(context);
  BlockHash parent = request.root_hash;
  const absl::Span<const int32_t> tokens(prompt_ids);
  const size_t num_full = tokens.size() / block_size;
  request.prompt_hashes.reserve(num_full);
  for (size_t i = 0; i < num_full; ++i) {
    parent = ChainHash(parent, tokens.subspan(i * block_size, block_size));
    request.prompt_hashes.push_back(parent);
  }
  request.prompt_ids = std::move(prompt_ids);
  request.params = std::move(params);
  return request;
}

}  // namespace quire
