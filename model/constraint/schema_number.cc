#include "model/constraint/schema_number.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/char_automaton.h"
#include "model/constraint/regex_parser.h"

namespace quire::constraint {
namespace {

using Relation = NumberDemand::Relation;

constexpr int64_t kMaxDigits = 2000;           // of a bound written without exponent
constexpr int64_t kMaxMultiple = 100'000'000;  // its digits as a whole number

// A decimal number without exponent: digits and sign.
struct Decimal {
  bool negative = false;
  std::string whole;     // without leading zeros; at least one digit
  std::string fraction;  // without trailing zeros
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

absl::StatusOr<Decimal> ParseDecimal(std::string text) {
  Decimal decimal;
  if (text[0] == '-') {
    decimal.negative = true;
    text.erase(0, 1);
  }
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::strtoll(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text;
  if (point < text.size()) digits.erase(point, 1);
  int64_t whole_digits = static_cast<int64_t>(point) + exponent;
  if (std::abs(whole_digits) + static_cast<int64_t>(digits.size()) > kMaxDigits) {
    return absl::ResourceExhaustedError(absl::StrCat("schema: a number has more than ", kMaxDigits, " digits"));
  }
  if (whole_digits <= 0) {
    digits.insert(0, static_cast<size_t>(1 - whole_digits), '0');
    whole_digits = 1;
  }
  if (static_cast<int64_t>(digits.size()) < whole_digits) digits.resize(static_cast<size_t>(whole_digits), '0');
  decimal.whole = digits.substr(0, static_cast<size_t>(whole_digits));
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size() - 1));
  decimal.fraction = digits.substr(static_cast<size_t>(whole_digits));
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

// Builds an automaton over digits and the point by following `next` from a first state of any comparable type.
constexpr int kPoint = 10;

std::vector<CharSet> DigitsAndPoint() {
  std::vector<CharSet> atoms;
  for (char32_t digit = '0'; digit <= '9'; ++digit) atoms.push_back(CharSet(digit, digit));
  atoms.push_back(CharSet('.', '.'));
  return atoms;
}

template <typename S, typename Next, typename Accepts>
absl::StatusOr<CharDfa> Explore(S first, Next next, Accepts accepts, Budget* budget) {
  std::map<S, int32_t> indices = {{first, 0}};
  std::vector<S> states = {first};
  std::vector<int32_t> targets;
  std::vector<bool> accepting;
  for (size_t i = 0; i < states.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(budget->SpendStates(1));
    accepting.push_back(accepts(states[i]));
    for (int symbol = 0; symbol <= kPoint; ++symbol) {
      const std::optional<S> after = next(states[i], symbol);
      if (!after) {
        targets.push_back(-1);
        continue;
      }
      const auto [it, is_new] = indices.try_emplace(*after, static_cast<int32_t>(states.size()));
      if (is_new) states.push_back(*after);
      targets.push_back(it->second);
    }
  }
  return CharDfa(DigitsAndPoint(), std::move(targets), std::move(accepting));
}

// The numbers from 0 on, written without needless leading zeros, that stand in `relation` to `bound`, which is not
// negative.
absl::StatusOr<CharDfa> Comparison(Relation relation, const Decimal& bound, Budget* budget) {
  struct State {
    bool in_fraction;
    int64_t digits;  // read in this part, as long as that matters
    int order;       // of what was read, to the same digits of the bound: -1, 0, 1
    bool operator<(const State& o) const {
      return std::tie(in_fraction, digits, order) < std::tie(o.in_fraction, o.digits, o.order);
    }
  };
  const auto num_whole = static_cast<int64_t>(bound.whole.size());
  const auto num_fraction = static_cast<int64_t>(bound.fraction.size());
  const auto whole_order = [=](const State& s) {
    return s.digits < num_whole ? -1 : s.digits > num_whole ? 1 : s.order;
  };
  const auto next = [&](const State& s, int symbol) -> std::optional<State> {
    if (!s.in_fraction) {
      if (symbol == kPoint) return State{true, 0, whole_order(s)};
      if (s.digits >= num_whole) return State{false, num_whole + 1, 1};
      const int digit = bound.whole[static_cast<size_t>(s.digits)] - '0';
      return State{false, s.digits + 1, s.order != 0 ? s.order : (symbol > digit) - (symbol < digit)};
    }
    if (symbol == kPoint) return std::nullopt;
    if (s.order != 0) return State{true, 0, s.order};
    const int digit = s.digits < num_fraction ? bound.fraction[static_cast<size_t>(s.digits)] - '0' : 0;
    const int order = (symbol > digit) - (symbol < digit);
    return State{true, order != 0 ? 0 : std::min(s.digits + 1, num_fraction), order};
  };
  const auto accepts = [&](const State& s) {
    int order = s.in_fraction ? s.order : whole_order(s);
    if (order == 0 && (s.in_fraction ? s.digits : 0) < num_fraction) order = -1;
    switch (relation) {
      case Relation::kAtLeast:
        return order >= 0;
      case Relation::kAbove:
        return order > 0;
      case Relation::kAtMost:
        return order <= 0;
      case Relation::kBelow:
        return order < 0;
    }
    return false;
  };
  return Explore(State{false, 0, 0}, next, accepts, budget);
}

// The multiples of `factor`: with d its decimal places, x * 10^d must be a multiple of a whole number.
absl::StatusOr<CharDfa> Multiples(const Decimal& factor, Budget* budget) {
  const std::string digits = factor.whole + factor.fraction;
  const int64_t whole = digits.size() <= 12 ? std::strtoll(digits.c_str(), nullptr, 10) : kMaxMultiple + 1;
  if (whole > kMaxMultiple || whole <= 0) {
    return absl::ResourceExhaustedError("schema: keyword 'multipleOf' has more than 8 digits");
  }
  const auto places = static_cast<int64_t>(factor.fraction.size());
  using State = std::tuple<bool, int64_t, int64_t>;  // in the fraction, digits of it, remainder so far
  const auto next = [=](const State& s, int symbol) -> std::optional<State> {
    const auto [in_fraction, count, remainder] = s;
    if (symbol == kPoint) return in_fraction ? std::nullopt : std::make_optional(State{true, 0, remainder});
    if (!in_fraction) return State{false, 0, (remainder * 10 + symbol) % whole};
    if (count == places) return symbol == 0 ? std::make_optional(s) : std::nullopt;
    return State{true, count + 1, (remainder * 10 + symbol) % whole};
  };
  const auto accepts = [=](const State& s) {
    int64_t remainder = std::get<2>(s);
    for (int64_t i = std::get<1>(s); i < places; ++i) remainder = remainder * 10 % whole;
    return remainder == 0;
  };
  return Explore(State{false, 0, 0}, next, accepts, budget);
}

absl::StatusOr<Expression> NumberExpression(const char* pattern) {
  return ParseRegex(pattern, RegexDialect::kEcmaScript, 10);
}

// The same for the value without its sign; nullopt if it cannot be fulfilled.
std::optional<NumberDemand::Bound> OfMagnitude(Relation relation, const Decimal& bound, bool negative,
                                               bool* is_trivial) {
  const bool is_lower = relation == Relation::kAtLeast || relation == Relation::kAbove;
  *is_trivial = false;
  if (!negative) {
    if (!bound.negative) return NumberDemand::Bound{relation, ""};
    *is_trivial = is_lower;
    return std::nullopt;
  }
  if (is_lower) {
    if (!bound.negative) return std::nullopt;  // also -0 where 0 is the least
    return NumberDemand::Bound{relation == Relation::kAtLeast ? Relation::kAtMost : Relation::kBelow, ""};
  }
  if (bound.negative || bound.is_zero()) {
    return NumberDemand::Bound{relation == Relation::kAtMost ? Relation::kAtLeast : Relation::kAbove, ""};
  }
  *is_trivial = true;
  return std::nullopt;
}

// The digits behind the sign.
absl::Status AddMagnitude(const NumberDemand& demand, bool negative, int32_t from, int32_t to,
                          NetworkBuilder* builder) {
  Budget* budget = &builder->budget();
  QUIRE_ASSIGN_OR_RETURN(const Expression written,
                         NumberExpression(demand.is_integer ? "(0|[1-9][0-9]*)" : "(0|[1-9][0-9]*)(\\.[0-9]+)?"));
  QUIRE_ASSIGN_OR_RETURN(const CharNfa nfa, CharNfa::Create(written, CharNfa::Match::kWhole, budget));
  QUIRE_ASSIGN_OR_RETURN(CharDfa numbers, CharDfa::Create(nfa, budget));
  for (const NumberDemand::Bound& bound : demand.bounds) {
    QUIRE_ASSIGN_OR_RETURN(const Decimal value, ParseDecimal(bound.value));
    bool is_trivial = false;
    const auto magnitude = OfMagnitude(bound.relation, value, negative, &is_trivial);
    if (is_trivial) continue;
    if (!magnitude) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(const CharDfa compared, Comparison(magnitude->relation, value, budget));
    QUIRE_ASSIGN_OR_RETURN(numbers, CharDfa::Intersection(numbers, compared, budget));
  }
  for (const std::string& factor : demand.multiples_of) {
    QUIRE_ASSIGN_OR_RETURN(const Decimal value, ParseDecimal(factor));
    if (demand.is_integer && value.whole == "1" && value.fraction.empty()) continue;
    QUIRE_ASSIGN_OR_RETURN(const CharDfa multiples, Multiples(value, budget));
    QUIRE_ASSIGN_OR_RETURN(numbers, CharDfa::Intersection(numbers, multiples, budget));
  }
  return numbers.AddTo(from, Encoding::kUtf8, to, builder);
}

}  // namespace

absl::Status AddNumber(const NumberDemand& demand, int32_t from, int32_t to, NetworkBuilder* builder) {
  if (demand.bounds.empty() && demand.multiples_of.empty()) {
    QUIRE_ASSIGN_OR_RETURN(
        const Expression written,
        NumberExpression(demand.is_integer ? "-?(0|[1-9][0-9]*)" : "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?"));
    return builder->AddExpression(from, written, Encoding::kUtf8, to);
  }
  QUIRE_RETURN_IF_ERROR(AddMagnitude(demand, /*negative=*/false, from, to, builder));
  QUIRE_ASSIGN_OR_RETURN(const int32_t signed_state, builder->AddState());
  builder->AddBytes(from, '-', '-', signed_state);
  return AddMagnitude(demand, /*negative=*/true, signed_state, to, builder);
}

}  // namespace quire::constraint
