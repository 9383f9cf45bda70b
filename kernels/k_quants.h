#pragma once

#include <cstdint>

// Where the bits of a GGUF K-quant block of 256 values are (ggml-common.h of ggml-org/ggml). Q4_K and Q5_K: f16 d, f16
// dmin, 12 bytes of 6-bit scales and minimums of 8 groups of 32, [Q5_K: 32 bytes of fifth bits,] nibbles. Q6_K: low
// nibbles, 64 bytes of high bit pairs, 16 int8 scales of groups of 16, f16 d.
namespace quire {

struct KScale {
  int scale = 0;    // 0..63
  int minimum = 0;  // 0..63
};

// `packed`: the 12 bytes; group: 0..7. Groups 0..3 lie in the low 6 bits of bytes 0..7; groups 4..7 have their low 4
// bits in bytes 8..11 and their high 2 bits on top of bytes 0..7.
constexpr KScale KScaleOf(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

// Value j (0..31) of a group, 0..15: groups 2i and 2i + 1 share 32 bytes, low and high nibbles.
constexpr int Q4_KValue(const uint8_t* block, int group, int j) {
  return (block[16 + 32 * (group / 2) + j] >> (4 * (group % 2))) & 15;
}

// 0..31: the fifth bit of value j of a group is bit `group` of byte j.
constexpr int Q5_KValue(const uint8_t* block, int group, int j) {
  const int low = (block[48 + 32 * (group / 2) + j] >> (4 * (group % 2))) & 15;
  return low | (((block[16 + j] >> group) & 1) << 4);
}

// Value j (0..31) of the group-th 32 values, 0..63 (32 stands for zero). A half of 128 values has 64 bytes of nibbles
// and 32 of bit pairs; its quarter q of 32 values takes nibble q / 2 of bytes 32 (q % 2) + j and pair q of bytes j.
constexpr int Q6_KValue(const uint8_t* block, int group, int j) {
  const int half = group / 4, quarter = group % 4;
  const int low = (block[64 * half + 32 * (quarter % 2) + j] >> (4 * (quarter / 2))) & 15;
  const int high = (block[128 + 32 * half + j] >> (2 * quarter)) & 3;
  return low | (high << 4);
}

}  // namespace quire
