#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"

namespace quire {

// Who asks.
struct Caller {
  std::string tenant;
  bool is_admin = false;
};

// The keys that callers must show; only their SHA-256 are kept. Immutable, any thread.
class ApiKeys {
 public:
  // A file with one key a line: KEY [TENANT [user|admin]], where KEY is the key itself or sha256: and 64 hexadecimal
  // digits; a tenant of "-" is the empty one; `#` begins a comment. kFailedPrecondition naming the line, never a key.
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // The caller whose key it is, or null. How long it takes does not depend on which keys it resembles.
  const Caller* Find(std::string_view key) const;
  size_t size() const { return keys_.size(); }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    Digest digest;
    Caller caller;
  };
  absl::Status AddLine(std::string_view line);

  std::vector<Key> keys_;
};

// The keys of a server, which may be exchanged while it runs. Any thread.
class ApiKeyStore {
 public:
  explicit ApiKeyStore(ApiKeys keys) : keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}

  void Set(ApiKeys keys) {
    MutexLock lock(&mutex_);
    keys_ = std::make_shared<const ApiKeys>(std::move(keys));
  }
  std::shared_ptr<const ApiKeys> Get() const {
    MutexLock lock(&mutex_);
    return keys_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const ApiKeys> keys_ ABSL_GUARDED_BY(mutex_);
};

// Who a request comes from. `authorization`: "Bearer KEY"; `tenant`: whom it says to be for (x-tenant). Without keys
// (null) that is believed and everybody is an admin; else the tenant is the key's, unless an admin names one.
// kUnauthenticated without a key that is known.
absl::StatusOr<Caller> Identify(const ApiKeyStore* keys, std::string_view authorization, std::string_view tenant);

}  // namespace quire
