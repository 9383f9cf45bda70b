#include "server/frontend/token_memory.h"

#include <utility>

namespace quire {

void TokenRecord::Keep(const std::vector<int32_t>& order) {
  MutexLock lock(&mutex_);
  std::vector<std::vector<int32_t>> kept(outputs_.size());
  for (size_t i = 0; i < order.size(); ++i) kept[i] = std::move(outputs_[order[i]]);
  outputs_ = std::move(kept);
}

void TokenRecord::Append(int32_t sequence, int32_t token) {
  MutexLock lock(&mutex_);
  outputs_[sequence].push_back(token);
}

std::vector<int32_t> TokenRecord::Tokens(int32_t sequence) const {
  std::vector<int32_t> tokens = prompt_;
  MutexLock lock(&mutex_);
  tokens.insert(tokens.end(), outputs_[sequence].begin(), outputs_[sequence].end());
  return tokens;
}

int64_t TokenRecord::num_tokens() const {
  auto tokens = static_cast<int64_t>(prompt_.size());
  MutexLock lock(&mutex_);
  for (const std::vector<int32_t>& output : outputs_) tokens += static_cast<int64_t>(output.size());
  return tokens;
}

void TokenMemory::Begin(std::shared_ptr<TokenRecord> record) {
  Name name(record->origin().tenant, record->origin().request_id);
  MutexLock lock(&mutex_);
  EraseLocked(name);
  entries_.emplace(std::move(name), Entry{std::move(record), 0, finished_.end()});
}

void TokenMemory::Finish(const std::shared_ptr<TokenRecord>& record) {
  const Name name(record->origin().tenant, record->origin().request_id);
  const int64_t tokens = record->num_tokens();
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.record != record) return;  // another one has the id by now
  found->second.finished_tokens = tokens;
  found->second.place = finished_.insert(finished_.end(), name);
  num_finished_tokens_ += tokens;
  while (num_finished_tokens_ > max_finished_tokens_) EraseLocked(Name(finished_.front()));
}

std::shared_ptr<const TokenRecord> TokenMemory::Find(const std::string& tenant, const std::string& request_id) const {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(Name(tenant, request_id));
  return found == entries_.end() ? nullptr : found->second.record;
}

void TokenMemory::EraseLocked(const Name& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  if (found->second.place != finished_.end()) {
    num_finished_tokens_ -= found->second.finished_tokens;
    finished_.erase(found->second.place);
  }
  entries_.erase(found);
}

}  // namespace quire
