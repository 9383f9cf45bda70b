#include "model/constraint/constraint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/char_automaton.h"
#include "model/constraint/compile_util.h"
#include "model/constraint/grammar_parser.h"
#include "model/constraint/network_builder.h"
#include "model/constraint/regex_parser.h"
#include "model/constraint/state_store.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {

struct Constraint::Current {
  Mutex mutex;
  std::shared_ptr<StateStore> store ABSL_GUARDED_BY(mutex);  // shared with matchers that still use it
};

Constraint::Constraint(std::unique_ptr<const Network> network, std::shared_ptr<const TokenVocabulary> vocabulary,
                       const ConstraintLimits& limits, Reasoning reasoning)
    : network_(std::move(network)),
      vocabulary_(std::move(vocabulary)),
      limits_(limits),
      reasoning_(reasoning),
      current_(std::make_unique<Current>()) {
  MutexLock lock(&current_->mutex);
  current_->store = std::make_shared<StateStore>(*network_, limits_.max_cache_bytes, limits_.max_match_steps);
}

Constraint::~Constraint() = default;

int64_t Constraint::num_states() const { return static_cast<int64_t>(network_->states.size()) - 1; }

int64_t Constraint::cache_bytes() const { return store()->bytes(); }

std::shared_ptr<StateStore> Constraint::store() const {
  MutexLock lock(&current_->mutex);
  return current_->store;
}

std::shared_ptr<StateStore> Constraint::StoreAfter(const StateStore* full) const {
  MutexLock lock(&current_->mutex);
  if (current_->store.get() == full) {
    current_->store = std::make_shared<StateStore>(*network_, limits_.max_cache_bytes, limits_.max_match_steps);
  }
  return current_->store;
}

absl::Status CheckSource(const char* what, std::string_view source, const ConstraintLimits& limits) {
  if (static_cast<int64_t>(source.size()) > limits.max_source_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the ", what, " has ", source.size(),
                                                     " bytes, more than max_source_bytes = ", limits.max_source_bytes));
  }
  if (!utf8::IsValid(source)) return absl::InvalidArgumentError(absl::StrCat("the ", what, " is not valid UTF-8"));
  return absl::OkStatus();
}

namespace {

// Anything up to the end of reasoning, and white space behind that.
absl::Status AddReasoning(int32_t from, int32_t to, const TokenVocabulary& vocabulary, NetworkBuilder* builder) {
  const std::string mark(kReasoningEnd);
  QUIRE_ASSIGN_OR_RETURN(const CharNfa with_end,
                         CharNfa::Create(Expression::Text(mark), CharNfa::Match::kSearch, &builder->budget()));
  QUIRE_ASSIGN_OR_RETURN(const CharDfa searched, CharDfa::Create(with_end, &builder->budget()));
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder->AddState());
  QUIRE_RETURN_IF_ERROR(searched.Complement().AddTo(from, Encoding::kUtf8, end, builder));
  const Expression space = Expression::Repeat(Expression::Chars(CharSet({{' ', ' '}, {'\n', '\n'}})), 0, 2);
  const Expression text = Expression::Concat({Expression::Text(vocabulary.WithSpecialTokens(mark)), space});
  return builder->AddExpression(end, text, Encoding::kUtf8, to);
}

// A rule for `text` behind reasoning.
absl::StatusOr<int32_t> BehindReasoning(int32_t text, Reasoning reasoning, const TokenVocabulary& vocabulary,
                                        NetworkBuilder* builder) {
  if (reasoning == Reasoning::kNone) return text;
  const int32_t rule = builder->DeclareRule();
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, builder->AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t inside, builder->AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t begin, builder->AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder->AddState());
  builder->DefineRule(rule, start, end);
  if (reasoning == Reasoning::kIsOpen) {
    builder->AddEpsilon(start, inside);
  } else {
    builder->AddEpsilon(start, begin);
    QUIRE_RETURN_IF_ERROR(builder->AddText(start, vocabulary.WithSpecialTokens(kReasoningBegin), inside));
  }
  QUIRE_RETURN_IF_ERROR(AddReasoning(inside, begin, vocabulary, builder));
  builder->AddRule(begin, text, end);
  return rule;
}

}  // namespace

ConstraintOr FinishConstraint(NetworkBuilder* builder, int32_t root, std::shared_ptr<const TokenVocabulary> vocabulary,
                              const ConstraintLimits& limits, Reasoning reasoning) {
  QUIRE_ASSIGN_OR_RETURN(const int32_t whole, BehindReasoning(root, reasoning, *vocabulary, builder));
  QUIRE_ASSIGN_OR_RETURN(auto network, builder->Finish(whole));
  auto constraint = std::make_shared<const Constraint>(std::move(network), std::move(vocabulary), limits, reasoning);
  if (constraint->store()->start() == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the constraint's begin needs more than max_match_steps = ", limits.max_match_steps));
  }
  return constraint;
}

ConstraintOr CompileRegex(std::string_view pattern, std::shared_ptr<const TokenVocabulary> vocabulary,
                          const ConstraintLimits& limits, Reasoning reasoning) {
  QUIRE_RETURN_IF_ERROR(CheckSource("regular expression", pattern, limits));
  Budget budget(limits);
  QUIRE_ASSIGN_OR_RETURN(const Expression expression, ParseRegex(pattern, RegexDialect::kPython, limits.max_depth));
  QUIRE_ASSIGN_OR_RETURN(const CharNfa nfa, CharNfa::Create(expression, CharNfa::Match::kWhole, &budget));
  NetworkBuilder builder(&budget);
  const int32_t root = builder.DeclareRule();
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, builder.AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder.AddState());
  builder.DefineRule(root, start, end);
  QUIRE_RETURN_IF_ERROR(nfa.AddTo(start, Encoding::kUtf8, end, &builder));
  return FinishConstraint(&builder, root, std::move(vocabulary), limits, reasoning);
}

ConstraintOr CompileChoices(absl::Span<const std::string> choices, std::shared_ptr<const TokenVocabulary> vocabulary,
                            const ConstraintLimits& limits, Reasoning reasoning) {
  if (choices.empty()) return absl::InvalidArgumentError("choices: there are none");
  int64_t bytes = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    bytes += static_cast<int64_t>(choices[i].size());
    if (choices[i].empty()) return absl::InvalidArgumentError(absl::StrCat("choices[", i, "] is empty"));
    if (!utf8::IsValid(choices[i])) {
      return absl::InvalidArgumentError(absl::StrCat("choices[", i, "] is not valid UTF-8"));
    }
  }
  if (bytes > limits.max_source_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("choices have ", bytes, " bytes, more than max_source_bytes = ", limits.max_source_bytes));
  }
  Budget budget(limits);
  NetworkBuilder builder(&budget);
  const int32_t root = builder.DeclareRule();
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, builder.AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder.AddState());
  builder.DefineRule(root, start, end);
  QUIRE_RETURN_IF_ERROR(builder.AddTexts(start, {choices.begin(), choices.end()}, end));
  return FinishConstraint(&builder, root, std::move(vocabulary), limits, reasoning);
}

ConstraintOr CompileGrammar(std::string_view grammar, std::shared_ptr<const TokenVocabulary> vocabulary,
                            const ConstraintLimits& limits, Reasoning reasoning) {
  QUIRE_RETURN_IF_ERROR(CheckSource("grammar", grammar, limits));
  QUIRE_ASSIGN_OR_RETURN(const ParsedGrammar parsed, ParseGrammar(grammar, limits.max_depth));
  Budget budget(limits);
  NetworkBuilder builder(&budget);
  for (size_t i = 0; i < parsed.rules.size(); ++i) builder.DeclareRule();
  for (size_t i = 0; i < parsed.rules.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(builder.DefineRule(static_cast<int32_t>(i), parsed.rules[i]));
  }
  return FinishConstraint(&builder, parsed.root, std::move(vocabulary), limits, reasoning);
}

}  // namespace quire::constraint
