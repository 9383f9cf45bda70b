#include "block_manager/token_permutation.h"

#include <utility>

#include "kernels/base/check.h"

namespace quire {
namespace {

// The finalizer of splitmix64 (Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint32_t Round(uint32_t half, uint64_t key) { return static_cast<uint32_t>(Mix(half + key)); }

}  // namespace

TokenPermutation::TokenPermutation(const Key& key, int bits) : bits_(bits), key_(key) {
  QUIRE_CHECK(bits >= kMinBits && bits <= kMaxBits);
  for (int i = 0; i < kRounds; ++i)
    round_keys_[i] = Mix(key[i % 2] + static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u);
  auto known = std::make_shared<std::array<int32_t, kKnown>>();
  for (uint32_t id = 0; id < kKnown; ++id) (*known)[id] = Permute(static_cast<int32_t>(id));
  known_ = std::move(known);
}

int32_t TokenPermutation::Permute(int32_t id) const {
  if (id < 0 || (static_cast<uint32_t>(id) >> bits_) != 0) return id;
  const int low_bits = bits_ - bits_ / 2;
  const uint32_t low_mask = (1u << low_bits) - 1, high_mask = (1u << bits_ / 2) - 1;
  uint32_t low = static_cast<uint32_t>(id) & low_mask, high = static_cast<uint32_t>(id) >> low_bits;
  for (int i = 0; i < kRounds; i += 2) {
    high ^= Round(low, round_keys_[i]) & high_mask;
    low ^= Round(high, round_keys_[i + 1]) & low_mask;
  }
  return static_cast<int32_t>(high << low_bits | low);
}

}  // namespace quire
