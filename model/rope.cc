#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/check.h"

namespace quire {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// theta^(-2i / rotary_dim)
std::vector<double> BaseFrequencies(double theta, int32_t rotary_dim) {
  std::vector<double> frequencies(rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

// Long wavelengths are stretched by the factor, short ones stay, those between are blended (Llama 3.1).
void ScaleLlama3(const RopeConfig& rope, std::vector<double>* frequencies) {
  const double original = rope.original_max_position_embeddings;
  for (double& frequency : *frequencies) {
    const double wavelength = kTwoPi / frequency;
    if (wavelength > original / rope.low_freq_factor) {
      frequency /= rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      const double smooth =
          (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
}

// YaRN (Peng et al., arXiv 2309.00071): dimensions that turn often keep their frequency, slow ones are stretched.
void ScaleYarn(const RopeConfig& rope, std::vector<double>* frequencies) {
  const auto dimension_of = [&](double rotations) {
    return rope.rotary_dim * std::log(rope.original_max_position_embeddings / (rotations * kTwoPi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;  // as the reference does, against division by zero
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / rope.factor * stretched + frequency * (1 - stretched);
  }
}

double YarnMscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double YarnAttentionFactor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale.value_or(0) != 0 && rope.mscale_all_dim.value_or(0) != 0) {
    return YarnMscale(rope.factor, *rope.mscale) / YarnMscale(rope.factor, *rope.mscale_all_dim);
  }
  return YarnMscale(rope.factor, 1);
}

// NTK-aware scaling whose base grows with the sequence.
double DynamicTheta(const RopeConfig& rope, double max_positions, double length) {
  const double dim = rope.rotary_dim;
  const double stretch = rope.factor * std::max(length, max_positions) / max_positions - (rope.factor - 1);
  return rope.theta * std::pow(stretch, dim / (dim - 2));
}

// LongRoPE (Ding et al., arXiv 2402.13753): one divisor a frequency, one set for short and one for long sequences.
void ScaleLongrope(const RopeConfig& rope, int64_t sequence_length, std::vector<double>* frequencies) {
  const std::vector<double>& factors =
      sequence_length > rope.original_max_position_embeddings ? rope.long_factor : rope.short_factor;
  QUIRE_CHECK(factors.size() == frequencies->size());
  for (size_t i = 0; i < factors.size(); ++i) (*frequencies)[i] /= factors[i];
}

double LongropeAttentionFactor(const RopeConfig& rope, double max_positions) {
  if (rope.attention_factor) return *rope.attention_factor;
  const double original = rope.original_max_position_embeddings;
  const double factor = rope.factor > 1 ? rope.factor : max_positions / original;
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

}  // namespace

RopeFrequencies ComputeRope(const RopeConfig& rope, int32_t max_position_embeddings, int64_t sequence_length) {
  using Type = RopeConfig::Type;
  const double theta = rope.type == Type::kDynamic
                           ? DynamicTheta(rope, max_position_embeddings, static_cast<double>(sequence_length))
                           : rope.theta;
  std::vector<double> frequencies = BaseFrequencies(theta, rope.rotary_dim);
  double attention_factor = 1;
  switch (rope.type) {
    case Type::kDefault:
    case Type::kDynamic:
      break;
    case Type::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case Type::kLlama3:
      ScaleLlama3(rope, &frequencies);
      break;
    case Type::kYarn:
      ScaleYarn(rope, &frequencies);
      attention_factor = YarnAttentionFactor(rope);
      break;
    case Type::kLongrope:
      ScaleLongrope(rope, sequence_length, &frequencies);
      attention_factor = LongropeAttentionFactor(rope, max_position_embeddings);
      break;
  }
  RopeFrequencies result;
  result.attention_factor = static_cast<float>(attention_factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divisor = rope.freq_divisors.empty() ? 1 : rope.freq_divisors[i];
    result.inv_freq.push_back(static_cast<float>(frequencies[i] / divisor));
  }
  return result;
}

}  // namespace quire
