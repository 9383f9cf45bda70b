#pragma once

// CUDA's vocabulary for g++: what kernels/cuda/simt.cuh includes when the compiler is not nvcc. Names and meanings are
// those of the CUDA C++ programming guide.

#include <cuda_runtime.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/simt/emulator_core.h"

// --- keywords

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
// Refused: SIMT_SHARED gives each block an object of its own, filled with NaN and fenced by ASan.
#define __shared__ static_assert(false, "use SIMT_SHARED or SIMT_DYNAMIC_SHARED");

#define threadIdx (::quire::simt::g_identity->thread)
#define blockIdx (::quire::simt::g_identity->block)
#define blockDim (::quire::simt::g_identity->block_dim)
#define gridDim (::quire::simt::g_identity->grid_dim)

#define SIMT_SITE_ARG , ::quire::simt::Site simt_site = ::quire::simt::Site::current()
#define SIMT_SITE_PASS , simt_site
#define SIMT_DYNAMIC_SHARED(name) unsigned char* const name = ::quire::simt::core::DynamicShared()
#define SIMT_SHARED(type, name, ...)                        \
  using name##_simt_type = type __VA_ARGS__;                \
  static const char name##_simt_key = 0;                    \
  name##_simt_type& name = *static_cast<name##_simt_type*>( \
      ::quire::simt::core::SharedVariable(&name##_simt_key, sizeof(name##_simt_type), alignof(name##_simt_type)))

// --- launch

namespace quire::simt {

// Runs the kernel now.
template <typename... Parameters>
cudaError_t RunKernel(const LaunchConfig& config, void (*kernel)(Parameters...),
                      std::tuple<std::remove_cv_t<Parameters>...>& copies) {
  if (core::PtxIsLoaded()) {
    return std::apply(
        [&](auto&... copy) {
          const void* addresses[] = {static_cast<const void*>(&copy)..., nullptr};
          const size_t sizes[] = {sizeof(copy)..., 0};
          return core::RunPtx(config, reinterpret_cast<const void*>(kernel), addresses, sizes,
                              static_cast<int>(sizeof...(Parameters)));
        },
        copies);
  }
  // Every lane gets copies of its own.
  auto body = [&] { std::apply([&](const auto&... copy) { kernel(copy...); }, copies); };
  using Body = decltype(body);
  return core::RunGrid(
      config, [](void* argument) { (*static_cast<Body*>(argument))(); }, &body);
}

// At once, or, into a stream (stream.h), when somebody waits for that.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(const LaunchConfig& config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> copies{Parameters(arguments)...};
  if (config.stream == nullptr) return RunKernel(config, kernel, copies);
  core::Enqueue(config.stream, [config, kernel, copies]() mutable { return RunKernel(config, kernel, copies); });
  return cudaSuccess;
}

}  // namespace quire::simt

// --- barriers and fences

inline void __syncthreads(quire::simt::Site site = quire::simt::Site::current()) {
  quire::simt::core::BlockBarrier(0, -1, site);
}
inline int __syncthreads_count(int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::core::BlockReduce(quire::simt::core::Reduction::kCount, predicate != 0, site);
}
inline int __syncthreads_and(int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::core::BlockReduce(quire::simt::core::Reduction::kAnd, predicate != 0, site);
}
inline int __syncthreads_or(int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::core::BlockReduce(quire::simt::core::Reduction::kOr, predicate != 0, site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, quire::simt::Site site = quire::simt::Site::current()) {
  quire::simt::core::WarpBarrier(mask, site);
}
inline void __threadfence() { quire::simt::core::ThreadFence(); }
inline void __threadfence_block() { quire::simt::core::ThreadFence(); }
inline void __nanosleep(unsigned, quire::simt::Site site = quire::simt::Site::current()) {
  quire::simt::core::SpinPause(site);
}

// --- shuffles, votes, reductions

namespace quire::simt {

template <typename T>
T ShuffleFrom(unsigned mask, T value, int source, bool valid, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8));
  T result = value;
  core::Shuffle(mask, &value, static_cast<int>(sizeof(T)), valid ? source : core::LaneId(), &result, site);
  return result;
}

template <typename T, typename Combine>
T ReduceLanes(unsigned mask, T value, Combine combine, Site site) {
  T all[32];
  const unsigned present = core::Gather(mask, &value, all, site);
  T result{};
  bool first = true;
  for (int i = 0; i < 32; ++i) {
    if (((present >> i) & 1) == 0) continue;
    result = first ? all[i] : combine(result, all[i]);
    first = false;
  }
  return result;
}

}  // namespace quire::simt

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              quire::simt::Site site = quire::simt::Site::current()) {
  const int base = quire::simt::core::LaneId() & ~(width - 1);
  return quire::simt::ShuffleFrom(mask, value, base | (source & (width - 1)), true, site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 quire::simt::Site site = quire::simt::Site::current()) {
  const int lane = quire::simt::core::LaneId(), source = lane - static_cast<int>(delta);
  return quire::simt::ShuffleFrom(mask, value, source, source >= (lane & ~(width - 1)), site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   quire::simt::Site site = quire::simt::Site::current()) {
  const int lane = quire::simt::core::LaneId(), source = lane + static_cast<int>(delta);
  return quire::simt::ShuffleFrom(mask, value, source, source < (lane & ~(width - 1)) + width, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  quire::simt::Site site = quire::simt::Site::current()) {
  // PTX's bfly: the source may lie in an earlier segment, not in a later one.
  const int lane = quire::simt::core::LaneId(), source = lane ^ bits;
  return quire::simt::ShuffleFrom(mask, value, source, source < (lane & ~(width - 1)) + width, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::core::Ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, quire::simt::Site site = quire::simt::Site::current()) {
  return __ballot_sync(mask, predicate == 0, site) == 0;
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::ReduceLanes(
      mask, value, [](T a, T b) { return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }, site);
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::ReduceLanes(
      mask, value, [](T a, T b) { return a > b ? a : b; }, site);
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, quire::simt::Site site = quire::simt::Site::current()) {
  return quire::simt::ReduceLanes(
      mask, value, [](T a, T b) { return a < b ? a : b; }, site);
}

#include "tests/simt/emulator_math.h"
