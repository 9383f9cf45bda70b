#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace quire {

// The numbers that the engine knows tenants by: 1, 2, ... in order of first use, for the life of the process; 0 is the
// empty name. Any thread.
class Tenants {
 public:
  static constexpr int32_t kMaxTenants = 4096;

  // kResourceExhausted naming the limit for a new name beyond kMaxTenants.
  absl::StatusOr<int32_t> NumberOf(const std::string& name);
  // -1: nobody has used the name.
  int32_t Find(const std::string& name) const;
  // Of a number that was given.
  std::string NameOf(int32_t number) const;

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, int32_t> numbers_ ABSL_GUARDED_BY(mutex_) = {{"", 0}};
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_) = {""};
};

}  // namespace quire
