#include "scheduler/admission_rate.h"

#include <cmath>

namespace quire {

void AdmissionRate::NoteStep(double seconds, bool some_wait) {
  if (some_wait && std::isfinite(seconds) && seconds > 0) {
    const double kept = std::exp(-seconds / kMemorySeconds);
    requests_ = requests_ * kept + static_cast<double>(new_requests_);
    tokens_ = tokens_ * kept + static_cast<double>(new_tokens_);
    seconds_ = seconds_ * kept + seconds;
  }
  new_requests_ = new_tokens_ = 0;
}

}  // namespace quire
