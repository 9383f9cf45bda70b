#include <string>
#include <string_view>

#include "block_manager/block.h"
#include "xxhash.h"

namespace quire {
namespace {

void AppendField(char tag, std::string_view value, std::string* out) {
  const uint64_t bytes = value.size();
  out->push_back(tag);
  out->append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  out->append(value);
}

}  // namespace

BlockHash RootHash(const KeyContext& context) {
  std::string fields;
  AppendField('p', {reinterpret_cast<const char*>(&context.process_seed), sizeof(context.process_seed)}, &fields);
  AppendField('w', context.weights_version, &fields);
  AppendField('a', context.adapter, &fields);
  AppendField('s', context.salt, &fields);
  AppendField('t', context.tenant, &fields);
  const XXH128_hash_t hash = XXH3_128bits(fields.data(), fields.size());
  return {hash.low64, hash.high64};
}

BlockHash ChainHash(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  // Two rounds, so that neither the tokens are copied nor half of the parent's key is lost (XXH3 seeds have 64 bits).
  const XXH128_hash_t inner = XXH3_128bits_withSeed(tokens.data(), tokens.size() * sizeof(int32_t), parent.low);
  const uint64_t both[] = {parent.low, parent.high, inner.low64, inner.high64, tokens.size()};
  const XXH128_hash_t hash = XXH3_128bits(both, sizeof(both));
  return {hash.low64, hash.high64};
}

}  // namespace quire
