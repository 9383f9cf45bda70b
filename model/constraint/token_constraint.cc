#include "model/constraint/token_constraint.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/matcher.h"
#include "model/constraint/token_mask.h"

namespace quire::constraint {
namespace {

constexpr int kMaxForcedAhead = 256;  // tokens at the begin of a text that are walked through in advance

// The bytes of reasoning that says nothing, as models write it; cut where states are that all reasoning comes by.
std::vector<std::string> EmptyReasoning(Reasoning reasoning, const TokenVocabulary& vocabulary) {
  std::vector<std::string> parts = {vocabulary.WithSpecialTokens(kReasoningEnd), "\n\n"};
  if (reasoning == Reasoning::kMayCome) parts.insert(parts.begin(), vocabulary.WithSpecialTokens(kReasoningBegin));
  return parts;
}

class MatcherConstraint final : public TokenConstraint {
 public:
  explicit MatcherConstraint(std::shared_ptr<const Constraint> constraint)
      : constraint_(std::move(constraint)), matcher_(constraint_) {}

  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<MatcherConstraint>(*this); }

  absl::Status Accept(int32_t token_id) override {
    next_ = nullptr;  // the matcher may leave the store that has it
    QUIRE_RETURN_IF_ERROR(matcher_.AcceptToken(token_id));
    matcher_.ForgetHistory();
    return FindNext();
  }
  absl::Status AcceptBytes(std::string_view bytes) {
    next_ = nullptr;
    QUIRE_RETURN_IF_ERROR(matcher_.AcceptBytes(bytes));
    return FindNext();
  }

  int32_t vocab_size() const override { return constraint_->vocabulary().size(); }
  int32_t num_allowed() const override { return next_ == nullptr ? 0 : next_->num_allowed; }
  int32_t only_token() const override {
    QUIRE_CHECK(num_allowed() == 1);
    return OnlyToken(*next_);
  }
  void FillMask(absl::Span<uint32_t> words) const override {
    QUIRE_CHECK(next_ != nullptr && static_cast<int64_t>(words.size()) == constraint_->vocabulary().num_words());
    WriteMask(*next_, words);
  }

  absl::Status FindNext() {
    if (matcher_.is_finished()) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(next_, matcher_.NextTokens());
    if (next_->num_allowed > 0 || matcher_.IsAccepting()) return absl::OkStatus();
    return absl::FailedPreconditionError("no token of the vocabulary can continue the text, which is not complete");
  }

 private:
  std::shared_ptr<const Constraint> constraint_;
  ConstraintMatcher matcher_;
  const TokenMask* next_ = nullptr;  // lives as long as the matcher; null: an end token was taken
};

// Takes what is forced, so that it is known.
absl::Status TakeForced(MatcherConstraint constraint) {
  for (int i = 0; i < kMaxForcedAhead && constraint.num_allowed() == 1; ++i) {
    QUIRE_RETURN_IF_ERROR(constraint.Accept(constraint.only_token()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenConstraint>> MakeTokenConstraint(
    std::shared_ptr<const Constraint> constraint) {
  const auto begin = std::make_shared<MatcherConstraint>(constraint);
  QUIRE_RETURN_IF_ERROR(begin->FindNext());
  if (begin->num_allowed() == 0) {
    return absl::InvalidArgumentError("only the empty text is allowed, and the model has no token that ends it");
  }
  QUIRE_RETURN_IF_ERROR(TakeForced(*begin));
  if (constraint->reasoning() == Reasoning::kNone) return begin;
  MatcherConstraint behind = *begin;
  for (const std::string& part : EmptyReasoning(constraint->reasoning(), constraint->vocabulary())) {
    QUIRE_RETURN_IF_ERROR(behind.AcceptBytes(part));
  }
  QUIRE_RETURN_IF_ERROR(TakeForced(std::move(behind)));
  return begin;
}

}  // namespace quire::constraint
