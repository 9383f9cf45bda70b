#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace quire {

// Names one physical KV block: the same number on every layer of a group. Not a pointer and not an offset. Numbers from
// the number of device blocks on name blocks of the host tier (BlockPool).
enum class BlockId : int32_t {};

// Never handed out. Padding entries of a device block table point here, so its contents must be readable and are never
// used.
inline constexpr BlockId kNullBlock{0};

// Names what can be found in the prefix cache: some tokens behind a prefix. It stays the same when the contents move
// from one block to another.
enum class EntryId : int32_t {};
inline constexpr EntryId kNoEntry{0};

// Key of a block's contents: the chain of its parent's key and its own tokens.
struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

// Everything but tokens that K and V depend on, or that keeps users apart.
struct KeyContext {
  uint64_t process_seed = 0;    // random per process unless --seed is given: keys cannot be predicted from outside
  std::string weights_version;  // which weights
  std::string adapter;
  std::string salt;  // chosen by the client: equal prompts under different salts share nothing
  std::string tenant;
};

// The parent of a first block. Every field is length-prefixed and tagged, so that no two contexts read the same.
BlockHash RootHash(const KeyContext& context);

// The key of a block whose parent has key `parent`: XXH3-128 over both.
BlockHash ChainHash(const BlockHash& parent, absl::Span<const int32_t> tokens);

}  // namespace quire
