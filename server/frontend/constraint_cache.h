#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/mutex.h"
#include "model/constraint/constraint.h"
#include "model/constraint/token_constraint.h"
#include "model/tokenizer/tokenizer.h"
#include "server/frontend/generate_request.h"

namespace quire {

struct ConstraintCacheOptions {
  int64_t max_entries = 256;
  // Of all entries: sources, automata, and the states and masks found while matching.
  int64_t max_bytes = 256 << 20;
  constraint::ConstraintLimits limits = ServingLimits();

  // As ConstraintLimits has them, but that one request may not make all others wait for long: a mask or a token that
  // takes more steps than this, some ten milliseconds, ends its request.
  static constraint::ConstraintLimits ServingLimits() {
    constraint::ConstraintLimits limits;
    limits.max_cache_bytes = 32 << 20;
    limits.max_match_steps = 2'000'000;
    return limits;
  }
};

// Compiles structured output for one model and keeps what was used last. Any thread but the engine's: Get takes as long
// as the compilation, a few milliseconds as a rule, and the first one also makes the tries of the vocabulary.
class ConstraintCache {
 public:
  // The tokenizer outlives it. `end_ids`: of the model; `vocab_size`: of its logits.
  ConstraintCache(const Tokenizer& tokenizer, std::vector<int32_t> end_ids, int32_t vocab_size,
                  ConstraintCacheOptions options = {});

  // Where a text begins; null for kFree. kInvalidArgument by InvalidField with the client's field: what is wrong with
  // the source, what is not supported, which limit it passes.
  absl::StatusOr<std::shared_ptr<const TokenConstraint>> Get(const StructuredOutput& wanted);

  int64_t num_entries() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const constraint::Constraint> constraint;
    int64_t bytes() const;
  };

  std::shared_ptr<const constraint::TokenVocabulary> Vocabulary();
  constraint::ConstraintOr Compile(const StructuredOutput& wanted);
  std::shared_ptr<const constraint::Constraint> Find(const std::string& key);
  void Keep(std::string key, std::shared_ptr<const constraint::Constraint> constraint);

  const Tokenizer& tokenizer_;
  const std::vector<int32_t> end_ids_;
  const int32_t vocab_size_;
  const ConstraintCacheOptions options_;

  Mutex vocabulary_mutex_;
  std::shared_ptr<const constraint::TokenVocabulary> vocabulary_ ABSL_GUARDED_BY(vocabulary_mutex_);

  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the latest used first
  absl::flat_hash_map<absl::string_view, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire
