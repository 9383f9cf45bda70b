#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

// Fixed work whose instructions tests/bench/instruction_count counts under callgrind.
extern "C" void QuireCounted(void (*work)(void*), void* context);

namespace quire {

template <class Work>
void CallWork(void* work) {
  (*static_cast<Work*>(work))();
}

// What happens in `work` is counted, and nothing else.
template <class Work>
void Count(Work work) {
  void (*volatile counted)(void (*)(void*), void*) = &QuireCounted;  // neither inlined nor specialised
  counted(&CallWork<Work>, &work);
}

// The same numbers everywhere.
class Numbers {
 public:
  int32_t Below(int32_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state_ >> 33) % static_cast<uint64_t>(limit));
  }
  std::vector<int32_t> Ids(int32_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = Below(50'000);
    return ids;
  }
  // In [-1, 1].
  std::vector<float> Floats(int64_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(Below(2'001) - 1'000) * 1e-3f;
    return values;
  }

 private:
  uint64_t state_ = 1;
};

struct InstructionLoad {
  std::string_view name;
  void (*run)();
};

// Kernels of the AVX2 path on one thread, the sampler, tokenizer and detokeniser. Valgrind 3.19 knows no AVX-512.
absl::Span<const InstructionLoad> ComputeLoads();

}  // namespace quire
