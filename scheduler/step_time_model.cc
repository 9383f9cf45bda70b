#include "scheduler/step_time_model.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// Units of the features, so that each weight is a fraction of a second for usual models.
constexpr double kTokens = 256, kPairs = 256 * 1024, kRows = 64, kPositions = 64 * 256;

constexpr double kForgetting = 0.99;  // a step counts half after about 70
constexpr double kInertia = 1e-2;     // pull of each weight to where it is; features over seconds are 10 to 1000
constexpr int kSweeps = 8;
constexpr double kCutErrors = 4, kLeastCut = 0.2;  // times the usual error; work of a new kind must be learnt
constexpr double kErrorMemory = 0.97;

}  // namespace

StepTimeModel::Vector StepTimeModel::Features(const StepLoad& load) {
  return {1, static_cast<double>(load.prefill_tokens) / kTokens, static_cast<double>(load.prefill_pairs) / kPairs,
          static_cast<double>(load.decode_rows) / kRows, static_cast<double>(load.decode_kv) / kPositions};
}

double StepTimeModel::Predict(const StepLoad& load) const {
  const Vector x = Features(load);
  double sum = 0;
  for (int i = 0; i < kNum; ++i) sum += weights_[i] * x[i];
  return sum;
}

double StepTimeModel::margin() const {
  constexpr double kSigmaPerMeanError = 1.2533;  // of a normal distribution
  return std::clamp(1 + 2.6 * kSigmaPerMeanError * usual_error_, 1.02, 1.5);
}

void StepTimeModel::Learn(const StepLoad& load, double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return;
  // Divided by the time itself: what counts is the relative error.
  Vector x = Features(load);
  double predicted = 0;
  for (int i = 0; i < kNum; ++i) {
    x[i] /= seconds;
    predicted += weights_[i] * x[i];
  }
  double error = 1 - predicted;
  if (ready()) {
    const double cut = std::max(kLeastCut, kCutErrors * usual_error_);
    error = std::clamp(error, -cut, cut);
    usual_error_ = std::clamp(kErrorMemory * usual_error_ + (1 - kErrorMemory) * std::abs(error), 1e-3, 1.0);
  }
  ++num_steps_;
  most_prefill_ = std::max(most_prefill_, std::min<int64_t>(load.prefill_tokens, 1 << 24));

  const double target = predicted + error;
  for (int i = 0; i < kNum; ++i) {
    for (int j = 0; j < kNum; ++j) xx_[i][j] = kForgetting * xx_[i][j] + x[i] * x[j];
    xy_[i] = kForgetting * xy_[i] + x[i] * target;
  }
  Solve();
}

void StepTimeModel::Solve() {
  const Vector before = weights_;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int i = 0; i < kNum; ++i) {
      double rest = xy_[i] + kInertia * before[i];
      for (int j = 0; j < kNum; ++j) rest -= j == i ? 0 : xx_[i][j] * weights_[j];
      weights_[i] = std::max(0.0, rest / (xx_[i][i] + kInertia));
    }
  }
}

double StepTimeModel::ChunkSeconds(int64_t start, int64_t num_tokens, bool decode) const {
  StepLoad load;
  load.Add(start, num_tokens, decode);
  return (Predict(load) - weights_[0]) * margin();
}

int32_t StepTimeModel::Fit(double seconds, int64_t start, int32_t limit) const {
  if (seconds <= 0) return 0;
  // pair n^2 / 2 + (token + pair start) n <= seconds
  const double pair = weights_[2] / kPairs * margin();
  const double linear = weights_[1] / kTokens * margin() + pair * (static_cast<double>(start) + 0.5);
  const double root = linear + std::sqrt(linear * linear + 2 * pair * seconds);
  if (root * limit <= 2 * seconds) return limit;
  return static_cast<int32_t>(2 * seconds / root);
}

}  // namespace quire
