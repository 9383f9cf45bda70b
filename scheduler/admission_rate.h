#pragma once

#include <cstdint>

namespace quire {

// How fast waiting requests start, for estimates of how long a newcomer will wait. Only steps that leave some waiting
// count: otherwise it would be the rate at which requests come. Older steps fade with a time constant of 10 s.
class AdmissionRate {
 public:
  // A request with a prompt of so many tokens has started.
  void NoteStart(int64_t prompt_tokens) {
    ++new_requests_;
    new_tokens_ += prompt_tokens;
  }
  // A step of `seconds` has run since the last call; not counted if that is 0: not measured.
  void NoteStep(double seconds, bool some_wait);

  // 0: not known yet.
  double requests_per_second() const { return seconds_ < kLeastSeconds ? 0 : requests_ / seconds_; }
  double tokens_per_second() const { return seconds_ < kLeastSeconds ? 0 : tokens_ / seconds_; }

 private:
  static constexpr double kMemorySeconds = 10, kLeastSeconds = 0.2;

  int64_t new_requests_ = 0, new_tokens_ = 0;
  double requests_ = 0, tokens_ = 0, seconds_ = 0;  // faded sums
};

}  // namespace quire
