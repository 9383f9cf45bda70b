#pragma once

#include <array>
#include <cstdint>

namespace quire {

// What one step has to do, as far as its time depends on it.
struct StepLoad {
  int64_t prefill_tokens = 0;  // rows of chunks
  int64_t prefill_pairs = 0;   // (row, position it attends to) pairs of chunks
  int64_t decode_rows = 0;     // rows of sequences that compute their one missing token
  int64_t decode_kv = 0;       // positions those attend to

  // Adds a chunk of `num_tokens` behind `start` tokens; `decode`: it is the one missing token of its sequence.
  void Add(int64_t start, int64_t num_tokens, bool decode) {
    const int64_t pairs = num_tokens * start + num_tokens * (num_tokens + 1) / 2;
    (decode ? decode_rows : prefill_tokens) += num_tokens;
    (decode ? decode_kv : prefill_pairs) += pairs;
  }
};

// How long a step takes, learnt from the steps that ran:
//
//   seconds = c0 + c1 prefill_tokens + c2 prefill_pairs + c3 decode_rows + c4 decode_kv,   every c >= 0
//
// by least squares on relative errors with forgetting: the normal equations are kept and solved for c >= 0 by sweeps of
// coordinate descent that go on where the last step's ended. Robust: one odd step moves it little (errors are cut at a
// few times the usual one), and what it is not shown stays as it was.
// A value: no clock, no allocation. Not thread-safe.
class StepTimeModel {
 public:
  // A step of this load took `seconds`. Ignored unless finite and > 0.
  void Learn(const StepLoad& load, double seconds);

  // Steps learnt from; predictions mean little before `ready`.
  bool ready() const { return num_steps_ >= kMinSteps; }

  // Seconds expected of a step; and with a margin that about one step in a hundred exceeds.
  double Predict(const StepLoad& load) const;
  double PredictHigh(const StepLoad& load) const { return Predict(load) * margin(); }
  // 1 + 2.6 times the usual relative error, in [1.02, 1.5].
  double margin() const;

  // The most tokens of a chunk behind `start` tokens that take at most `seconds` beyond the rest of the step, margin
  // included; 0 if not even one does. At most `limit`.
  int32_t Fit(double seconds, int64_t start, int32_t limit) const;
  // Tokens of chunks in a step that predictions reach to: twice the most that was seen.
  int32_t trusted_chunk() const { return static_cast<int32_t>(2 * most_prefill_); }
  // Seconds that a chunk adds to a step, margin included.
  double ChunkSeconds(int64_t start, int64_t num_tokens, bool decode) const;

 private:
  static constexpr int kNum = 5;
  static constexpr int64_t kMinSteps = 12;
  using Vector = std::array<double, kNum>;

  static Vector Features(const StepLoad& load);

  void Solve();

  Vector weights_ = {};
  // Faded sums of x x' and of x y over steps: features over seconds, and 1 (cut).
  std::array<Vector, kNum> xx_ = {};
  Vector xy_ = {};
  double usual_error_ = 0.1;  // mean of |relative error|
  int64_t num_steps_ = 0;
  int64_t most_prefill_ = 16;  // tokens of chunks in one step
};

}  // namespace quire
