#include "tests/simt/stream.h"

#include <utility>

#include "tests/simt/emulator_core.h"

namespace quire::simt {

cudaError_t Stream::Synchronize() {
  while (!work_.empty() && failure_ == cudaSuccess) {
    const std::function<cudaError_t()> work = std::move(work_.front());
    work_.pop_front();
    failure_ = work();
  }
  work_.clear();
  return failure_;
}

namespace core {

void Enqueue(cudaStream_t stream, std::function<cudaError_t()> work) { Stream::Of(stream).Enqueue(std::move(work)); }

}  // namespace core
}  // namespace quire::simt
