#include "server/frontend/constraint_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;

constexpr int64_t kBytesPerState = 64;  // of an automaton, about

// Equal keys are equal constraints.
std::string KeyOf(const StructuredOutput& wanted) {
  const constraint::CallSyntax& calls = wanted.calls;
  std::string key = absl::StrCat(static_cast<int>(wanted.kind), static_cast<int>(wanted.reasoning), wanted.compact_json,
                                 static_cast<int>(calls.arguments), calls.repeats);
  const auto add = [&key](const std::string& text) { absl::StrAppend(&key, ":", text.size(), ":", text); };
  for (const std::string* text : {&wanted.source, &calls.before, &calls.between, &calls.after, &calls.name_before,
                                  &calls.arguments_before, &calls.call_after}) {
    add(*text);
  }
  for (const std::string& choice : wanted.choices) add(choice);
  for (const constraint::CallSyntax::Function& function : calls.functions) {
    add(function.name);
    add(function.parameters);
  }
  return key;
}

}  // namespace

ConstraintCache::ConstraintCache(const Tokenizer& tokenizer, std::vector<int32_t> end_ids, int32_t vocab_size,
                                 ConstraintCacheOptions options)
    : tokenizer_(tokenizer), end_ids_(std::move(end_ids)), vocab_size_(vocab_size), options_(options) {}

absl::StatusOr<std::shared_ptr<const TokenConstraint>> ConstraintCache::Get(const StructuredOutput& wanted) {
  if (wanted.kind == Kind::kFree) return nullptr;
  std::string key = KeyOf(wanted);
  std::shared_ptr<const constraint::Constraint> constraint = Find(key);
  const bool is_new = constraint == nullptr;
  if (is_new) {
    constraint::ConstraintOr compiled = Compile(wanted);
    if (!compiled.ok()) return InvalidField(wanted.field, std::string(compiled.status().message()));
    constraint = *std::move(compiled);
  }
  auto begin = constraint::MakeTokenConstraint(constraint);
  if (!begin.ok()) return InvalidField(wanted.field, std::string(begin.status().message()));
  if (is_new) Keep(std::move(key), std::move(constraint));
  return begin;
}

constraint::ConstraintOr ConstraintCache::Compile(const StructuredOutput& wanted) {
  const auto whitespace =
      wanted.compact_json ? constraint::JsonWhitespace::kCompact : constraint::JsonWhitespace::kFree;
  switch (wanted.kind) {
    case Kind::kFree:
      break;
    case Kind::kJsonSchema:
      return constraint::CompileJsonSchema(wanted.source, whitespace, Vocabulary(), options_.limits, wanted.reasoning);
    case Kind::kJsonObject:
      return constraint::CompileJsonObject(whitespace, Vocabulary(), options_.limits, wanted.reasoning);
    case Kind::kRegex:
      return constraint::CompileRegex(wanted.source, Vocabulary(), options_.limits, wanted.reasoning);
    case Kind::kGrammar:
      return constraint::CompileGrammar(wanted.source, Vocabulary(), options_.limits, wanted.reasoning);
    case Kind::kChoices:
      return constraint::CompileChoices(wanted.choices, Vocabulary(), options_.limits, wanted.reasoning);
    case Kind::kCalls:
      return constraint::CompileCalls(wanted.calls, whitespace, Vocabulary(), options_.limits, wanted.reasoning);
  }
  return absl::InternalError("a constraint of no kind");
}

std::shared_ptr<const constraint::TokenVocabulary> ConstraintCache::Vocabulary() {
  MutexLock lock(&vocabulary_mutex_);
  if (vocabulary_ == nullptr) {
    vocabulary_ = std::make_shared<const constraint::TokenVocabulary>(tokenizer_, end_ids_, vocab_size_);
  }
  return vocabulary_;
}

int64_t ConstraintCache::Entry::bytes() const {
  return static_cast<int64_t>(key.size()) + kBytesPerState * constraint->num_states() + constraint->cache_bytes();
}

std::shared_ptr<const constraint::Constraint> ConstraintCache::Find(const std::string& key) {
  MutexLock lock(&mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->constraint;
}

// What is dropped lives on with the requests that use it.
void ConstraintCache::Keep(std::string key, std::shared_ptr<const constraint::Constraint> constraint) {
  MutexLock lock(&mutex_);
  if (by_key_.contains(key)) return;  // another thread was faster
  entries_.push_front({std::move(key), std::move(constraint)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  int64_t bytes = 0, kept = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    bytes += entry->bytes();  // grows while it is used
    if (++kept <= options_.max_entries && (bytes <= options_.max_bytes || kept == 1)) {
      ++entry;
    } else {
      by_key_.erase(entry->key);
      entry = entries_.erase(entry);
    }
  }
}

int64_t ConstraintCache::num_entries() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace quire
