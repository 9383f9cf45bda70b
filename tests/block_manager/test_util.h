#pragma once

#include <vector>

#include "block_manager/block_manager.h"
#include "gtest/gtest.h"

// What the tests of the block manager share.
namespace quire::testing {

inline const absl::Time kStart = absl::FromUnixSeconds(1000);

// Keys that collide.
inline BlockHash OneBitHash(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  return {ChainHash(parent, tokens).low & 1, 0};
}

inline PrefixKeys KeysOf(absl::Span<const int32_t> tokens, int32_t block_size, const BlockHash& root = {3, 4},
                         BlockHash (*chain_hash)(const BlockHash&, absl::Span<const int32_t>) = &ChainHash) {
  PrefixKeys keys;
  keys.root = root;
  BlockHash parent = root;
  for (size_t i = 0; (i + 1) * block_size <= tokens.size(); ++i) {
    parent = chain_hash(parent, tokens.subspan(i * block_size, block_size));
    keys.blocks.push_back(parent);
  }
  return keys;
}

// first, first + 1, ...
inline std::vector<int32_t> Iota(int32_t n, int32_t first = 0) {
  std::vector<int32_t> tokens(n);
  for (int32_t i = 0; i < n; ++i) tokens[i] = first + i;
  return tokens;
}

// A table as it is once all of `tokens` were computed, with what is asked of the cache in `keys`.
inline BlockTable Stored(BlockManager& blocks, const std::vector<int32_t>& tokens, PrefixKeys keys) {
  const auto size = static_cast<int32_t>(tokens.size());
  BlockTable table = blocks.NewTable();
  EXPECT_EQ(blocks.Reserve(table, size), absl::OkStatus());
  blocks.Publish(table, tokens, size, keys);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  return table;
}
inline BlockTable Stored(BlockManager& blocks, const std::vector<int32_t>& tokens) {
  return Stored(blocks, tokens, KeysOf(tokens, blocks.block_size()));
}

// Tokens that a request for all of `tokens` would find. Renews what it finds.
inline PrefixMatch Match(BlockManager& blocks, const std::vector<int32_t>& tokens, const PrefixKeys& keys) {
  BlockTable table = blocks.NewTable();
  return blocks.MatchPrefix(keys, tokens, static_cast<int32_t>(tokens.size()), table);
}
inline int32_t Hit(BlockManager& blocks, const std::vector<int32_t>& tokens) {
  return Match(blocks, tokens, KeysOf(tokens, blocks.block_size())).num_tokens;
}

// Takes `n` blocks and gives them back.
inline void Churn(BlockManager& blocks, int32_t n) {
  BlockTable hog = blocks.NewTable();
  EXPECT_EQ(blocks.Reserve(hog, n * blocks.block_size()), absl::OkStatus());
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

}  // namespace quire::testing
