// The functions that g++ calls at every access of code built with -fsanitize=thread (GCC's and LLVM's interface to
// libtsan, which is not linked).
#include <cstddef>

#include "tests/simt/race.h"

using quire::simt::race::Access;

#define CALLER __builtin_return_address(0)

#define HOOKS_OF_SIZE(N)                                                         \
  void __tsan_read##N(void* p) { Access(p, N, false, false, CALLER); }           \
  void __tsan_write##N(void* p) { Access(p, N, true, false, CALLER); }           \
  void __tsan_unaligned_read##N(void* p) { Access(p, N, false, false, CALLER); } \
  void __tsan_unaligned_write##N(void* p) { Access(p, N, true, false, CALLER); } \
  void __tsan_volatile_read##N(void* p) { Access(p, N, false, false, CALLER); }  \
  void __tsan_volatile_write##N(void* p) { Access(p, N, true, false, CALLER); }

#define ATOMIC_HOOKS(BITS, T)                                                                          \
  T __tsan_atomic##BITS##_load(const volatile T* p, int) {                                             \
    Access(p, BITS / 8, false, true, CALLER);                                                          \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                    \
  void __tsan_atomic##BITS##_store(volatile T* p, T value, int) {                                      \
    Access(p, BITS / 8, true, true, CALLER);                                                           \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                    \
  T __tsan_atomic##BITS##_exchange(volatile T* p, T value, int) {                                      \
    Access(p, BITS / 8, true, true, CALLER);                                                           \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                    \
  T __tsan_atomic##BITS##_fetch_add(volatile T* p, T value, int) {                                     \
    Access(p, BITS / 8, true, true, CALLER);                                                           \
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                    \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* p, T* expected, T value, int, int) {   \
    Access(p, BITS / 8, true, true, CALLER);                                                           \
    return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                    \
  T __tsan_atomic##BITS##_compare_exchange_val(volatile T* p, T expected, T value, int, int) {         \
    Access(p, BITS / 8, true, true, CALLER);                                                           \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                                   \
  }

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_read_range(void* p, size_t n) { Access(p, n, false, false, CALLER); }
void __tsan_write_range(void* p, size_t n) { Access(p, n, true, false, CALLER); }

HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)
ATOMIC_HOOKS(8, unsigned char)
ATOMIC_HOOKS(16, unsigned short)
ATOMIC_HOOKS(32, unsigned int)
ATOMIC_HOOKS(64, unsigned long)

}  // extern "C"
