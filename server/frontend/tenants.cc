#include "server/frontend/tenants.h"

#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<int32_t> Tenants::NumberOf(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) return known->second;
  if (static_cast<int32_t>(names_.size()) > kMaxTenants)
    return absl::ResourceExhaustedError(absl::StrCat("tenant: '", name, "' is new and ", kMaxTenants,
                                                     " tenants are known already, which is the limit"));
  const auto number = static_cast<int32_t>(names_.size());
  names_.push_back(name);
  numbers_.emplace(name, number);
  return number;
}

int32_t Tenants::Find(const std::string& name) const {
  MutexLock lock(&mutex_);
  const auto known = numbers_.find(name);
  return known == numbers_.end() ? -1 : known->second;
}

std::string Tenants::NameOf(int32_t number) const {
  MutexLock lock(&mutex_);
  return names_.at(number);
}

}  // namespace quire
