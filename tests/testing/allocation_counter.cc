#include "tests/testing/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t thread_allocations = 0;
std::atomic<int64_t> total_allocations{0};

void* CountingAllocate(size_t bytes, size_t alignment) {
  ++thread_allocations;
  total_allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes == 0) bytes = 1;
  void* data = alignment <= alignof(std::max_align_t)
                   ? std::malloc(bytes)
                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return CountingAllocate(bytes, 1); }
void* operator new[](size_t bytes) { return CountingAllocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountingAllocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return CountingAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace quire::testing {

int64_t ThreadAllocations() { return thread_allocations; }
int64_t TotalAllocations() { return total_allocations.load(std::memory_order_relaxed); }

}  // namespace quire::testing
