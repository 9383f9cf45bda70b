#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace quire {

// Loops that will be one run of the pool, and what they work on: ops that are put off. Allocates nothing once it has
// been as large before. Not thread-safe.
class Program {
 public:
  // A copy that stays where it is until Run or Clear.
  template <typename T>
  T* New(const T& value) {
    static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= kChunkBytes && alignof(T) <= alignof(Chunk));
    const size_t bytes = (sizeof(T) + alignof(Chunk) - 1) / alignof(Chunk) * alignof(Chunk);
    if (chunk_ == chunks_.size() || used_ + bytes > kChunkBytes) NextChunk();
    void* const place = chunks_[chunk_]->bytes + used_;
    used_ += bytes;
    return new (place) T(value);
  }

  void Add(const ThreadPool::Loop& loop) { loops_.push_back(loop); }

  bool empty() const { return loops_.empty(); }

  void Run(ThreadPool& pool) {
    pool.RunLoops(loops_);
    Clear();
  }
  void Clear() {
    loops_.clear();
    chunk_ = used_ = 0;
  }

 private:
  static constexpr size_t kChunkBytes = 64 << 10;
  struct alignas(64) Chunk {
    std::byte bytes[kChunkBytes];
  };

  void NextChunk() {
    if (!chunks_.empty()) ++chunk_;
    if (chunk_ == chunks_.size()) chunks_.push_back(std::make_unique<Chunk>());
    used_ = 0;
  }

  std::vector<ThreadPool::Loop> loops_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;  // of chunks_[chunk_]
};

}  // namespace quire
