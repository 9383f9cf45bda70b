#pragma once

#include <array>
#include <cstdint>

// The project's random numbers: one definition for every device.
//
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC'11): a bijection of
// a 128-bit counter under a 64-bit key. Stateless, so the number of a token is a pure function of what keys it.
namespace quire {

constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// What the number is for: different purposes never share a number.
enum class RandomPurpose : uint32_t { kDraw = 0, kXtc = 1 };

// Uniform in [0, 1) with 24 bits, keyed by (seed, sequence index of the request, output position, purpose).
constexpr float UniformFloat(uint64_t seed, uint32_t sequence_index, uint32_t output_position, RandomPurpose purpose) {
  const std::array<uint32_t, 4> bits = Philox4x32({output_position, sequence_index, static_cast<uint32_t>(purpose), 0},
                                                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<float>(bits[0] >> 8) * 0x1p-24f;
}

}  // namespace quire
