#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "kernels/base/mutex.h"

namespace quire {

// The tokens of one request as far as the front end has seen them. Any thread.
class TokenRecord {
 public:
  struct Origin {
    std::string request_id, tenant, cache_salt;
    uint64_t handle = 0;
  };

  TokenRecord(Origin origin, std::vector<int32_t> prompt, int32_t num_sequences)
      : origin_(std::move(origin)),
        prompt_(std::move(prompt)),
        num_sequences_(num_sequences),
        outputs_(num_sequences) {}

  const Origin& origin() const { return origin_; }
  int32_t num_sequences() const { return num_sequences_; }
  void Append(int32_t sequence, int32_t token);
  // Sequence i is what was sequence order[i], for each i; what stands there no more is forgotten.
  void Keep(const std::vector<int32_t>& order);
  // Prompt and output of one sequence.
  std::vector<int32_t> Tokens(int32_t sequence) const;
  int64_t num_tokens() const;  // of everything

 private:
  const Origin origin_;
  const std::vector<int32_t> prompt_;
  const int32_t num_sequences_;
  mutable Mutex mutex_;
  std::vector<std::vector<int32_t>> outputs_ ABSL_GUARDED_BY(mutex_);
};

// What Fork can name: every live request, and of the finished ones the latest that have at most `max_finished_tokens`
// tokens together (4 bytes each). A request of the same id and tenant takes the place of an earlier one. Any thread.
class TokenMemory {
 public:
  explicit TokenMemory(int64_t max_finished_tokens) : max_finished_tokens_(max_finished_tokens) {}

  void Begin(std::shared_ptr<TokenRecord> record);
  // Its client has had the end.
  void Finish(const std::shared_ptr<TokenRecord>& record);
  // Null if this tenant has none of that id.
  std::shared_ptr<const TokenRecord> Find(const std::string& tenant, const std::string& request_id) const;

 private:
  using Name = std::pair<std::string, std::string>;  // tenant, request id
  struct Entry {
    std::shared_ptr<TokenRecord> record;
    int64_t finished_tokens = 0;
    std::list<Name>::iterator place;  // in finished_; its end while live
  };

  void EraseLocked(const Name& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_finished_tokens_;
  mutable Mutex mutex_;
  absl::flat_hash_map<Name, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::list<Name> finished_ ABSL_GUARDED_BY(mutex_);  // the earliest first
  int64_t num_finished_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire
