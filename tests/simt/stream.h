#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <functional>
#include <utility>

// Streams of the emulator. One thread.
namespace quire::simt {

// Work that waits until somebody waits for it, then is done in order. After a failure nothing more is done, and each
// wait answers that failure.
class Stream {
 public:
  cudaStream_t handle() { return reinterpret_cast<cudaStream_t>(this); }
  static Stream& Of(cudaStream_t handle) { return *reinterpret_cast<Stream*>(handle); }

  void Enqueue(std::function<cudaError_t()> work) { work_.push_back(std::move(work)); }
  cudaError_t Synchronize();

 private:
  std::deque<std::function<cudaError_t()>> work_;
  cudaError_t failure_ = cudaSuccess;
};

}  // namespace quire::simt
