#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/constraint/reply_form.h"
#include "model/constraint/token_vocabulary.h"

// Constrained decoding (formats.md 6.6): what texts a sequence may become, compiled for one vocabulary.
namespace quire::constraint {

class StateStore;
struct Network;

// Bounds on one compilation and on what its matchers share. Passing one is kResourceExhausted naming it.
struct ConstraintLimits {
  int64_t max_source_bytes = 1 << 20;    // of the schema, expression or grammar; of all choices together
  int64_t max_depth = 200;               // nesting of the source
  int64_t max_states = 400'000;          // of the automaton, and of each one on the way to it
  int64_t max_steps = 20'000'000;        // of compilation: some hundred milliseconds
  int64_t max_cache_bytes = 64 << 20;    // states and masks found while matching; the oldest go when it is full
  int64_t max_match_steps = 20'000'000;  // for one mask or one token: ends the one request that needs more
};

enum class JsonWhitespace {
  kFree,     // where JSON allows it between tokens: space, tab, line feed, carriage return; not around the whole text
  kCompact,  // nowhere
};

// A compiled constraint. Immutable but for caches inside, which are bounded and safe to use from many threads: all
// sequences with the same constraint share one. Made by the functions below, used by ConstraintMatcher.
class Constraint {
 public:
  Constraint(std::unique_ptr<const Network> network, std::shared_ptr<const TokenVocabulary> vocabulary,
             const ConstraintLimits& limits, Reasoning reasoning);
  ~Constraint();

  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  const ConstraintLimits& limits() const { return limits_; }
  Reasoning reasoning() const { return reasoning_; }  // what comes before the text
  int64_t num_states() const;                         // of the automaton as compiled
  int64_t cache_bytes() const;

  // For ConstraintMatcher: the store that new matchers use; a new one once `full` has reached its limit.
  std::shared_ptr<StateStore> store() const;
  std::shared_ptr<StateStore> StoreAfter(const StateStore* full) const;

 private:
  struct Current;

  std::unique_ptr<const Network> network_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  ConstraintLimits limits_;
  Reasoning reasoning_;
  std::unique_ptr<Current> current_;
};

// All: `reasoning` says what comes before the text. kInvalidArgument naming what is wrong and where, or what is not
// supported; kResourceExhausted naming a limit; an expression that no text matches is an error. Safe from any thread; a
// few milliseconds for ordinary sources.
using ConstraintOr = absl::StatusOr<std::shared_ptr<const Constraint>>;

// The whole text matches the regular expression, as Python's re.fullmatch on str has it. README.md lists what is
// refused.
ConstraintOr CompileRegex(std::string_view pattern, std::shared_ptr<const TokenVocabulary> vocabulary,
                          const ConstraintLimits& limits = {}, Reasoning reasoning = Reasoning::kNone);

// The text is one of `choices`: at least one, each not empty and valid UTF-8.
ConstraintOr CompileChoices(absl::Span<const std::string> choices, std::shared_ptr<const TokenVocabulary> vocabulary,
                            const ConstraintLimits& limits = {}, Reasoning reasoning = Reasoning::kNone);

// A grammar in EBNF as GBNF and xgrammar write it; the text is what rule `root` derives. Left recursion is fine.
ConstraintOr CompileGrammar(std::string_view grammar, std::shared_ptr<const TokenVocabulary> vocabulary,
                            const ConstraintLimits& limits = {}, Reasoning reasoning = Reasoning::kNone);

// The text is a JSON value that `schema`, itself JSON text, allows. README.md has keywords and deviations.
ConstraintOr CompileJsonSchema(std::string_view schema, JsonWhitespace whitespace,
                               std::shared_ptr<const TokenVocabulary> vocabulary, const ConstraintLimits& limits = {},
                               Reasoning reasoning = Reasoning::kNone);

// The text is any JSON object.
ConstraintOr CompileJsonObject(JsonWhitespace whitespace, std::shared_ptr<const TokenVocabulary> vocabulary,
                               const ConstraintLimits& limits = {}, Reasoning reasoning = Reasoning::kNone);

// The text is calls of `syntax`'s functions, whose arguments their schemas allow. Errors name the function.
ConstraintOr CompileCalls(const CallSyntax& syntax, JsonWhitespace whitespace,
                          std::shared_ptr<const TokenVocabulary> vocabulary, const ConstraintLimits& limits = {},
                          Reasoning reasoning = Reasoning::kNone);

}  // namespace quire::constraint
