#pragma once

#include <cstdint>

// What LoadModelConfig takes: beyond every published model, and small enough that no product of two overflows int64.
namespace quire::config_limits {

inline constexpr int64_t kMaxVocabSize = int64_t{1} << 24;
inline constexpr int64_t kMaxHiddenSize = int64_t{1} << 20;
inline constexpr int64_t kMaxIntermediateSize = int64_t{1} << 22;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kMinPositions = 2;  // one to read, one to write
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
inline constexpr double kMinRmsNormEps = 1e-12, kMaxRmsNormEps = 1;
inline constexpr double kMinRopeTheta = 2, kMaxRopeTheta = 1e15;
inline constexpr double kMinRopeFactor = 1, kMaxRopeFactor = 1e6;

}  // namespace quire::config_limits
