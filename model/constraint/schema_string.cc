#include "model/constraint/schema_string.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/regex_parser.h"

namespace quire::constraint {
namespace {

#define QUIRE_LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define QUIRE_DATE                                                                                                    \
  "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))" \
  "|" QUIRE_LEAP_YEAR "-02-29)"
#define QUIRE_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define QUIRE_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define QUIRE_IPV4 "(" QUIRE_BYTE "\\.){3}" QUIRE_BYTE
#define QUIRE_H16 "[0-9A-Fa-f]{1,4}"
#define QUIRE_LS32 "(" QUIRE_H16 ":" QUIRE_H16 "|" QUIRE_IPV4 ")"
#define QUIRE_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define QUIRE_HOST QUIRE_LABEL "(\\." QUIRE_LABEL ")*"
#define QUIRE_ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define QUIRE_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define QUIRE_AUTHORITY \
  "(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(:[0-9]*)?"
#define QUIRE_TAIL "(\\?(" QUIRE_PCHAR "|[/?])*)?(#(" QUIRE_PCHAR "|[/?])*)?"

struct Format {
  const char* name;
  const char* pattern;  // null: a format of JSON Schema that is not built
};

// RFC 3339, 5321 (dot-atoms), 1123, 2673, 4291, 3986, 4122, 6901 and ISO 8601's durations as RFC 3339 appendix A has
// them.
constexpr Format kFormats[] = {
    {"date", QUIRE_DATE},
    {"time", QUIRE_TIME},
    {"date-time", QUIRE_DATE "[Tt]" QUIRE_TIME},
    {"duration",
     "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?"
     "|"
     "[0-9]+S))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"},
    {"email", QUIRE_ATEXT "(\\." QUIRE_ATEXT ")*@" QUIRE_HOST},
    {"hostname", QUIRE_HOST},
    {"ipv4", QUIRE_IPV4},
    {"ipv6", "(" QUIRE_H16 ":){6}" QUIRE_LS32 "|::(" QUIRE_H16 ":){5}" QUIRE_LS32 "|(" QUIRE_H16 ")?::(" QUIRE_H16
             ":){4}" QUIRE_LS32 "|((" QUIRE_H16 ":){0,1}" QUIRE_H16 ")?::(" QUIRE_H16 ":){3}" QUIRE_LS32 "|((" QUIRE_H16
             ":){0,2}" QUIRE_H16 ")?::(" QUIRE_H16 ":){2}" QUIRE_LS32 "|((" QUIRE_H16 ":){0,3}" QUIRE_H16
             ")?::" QUIRE_H16 ":" QUIRE_LS32 "|((" QUIRE_H16 ":){0,4}" QUIRE_H16 ")?::" QUIRE_LS32 "|((" QUIRE_H16
             ":){0,5}" QUIRE_H16 ")?::" QUIRE_H16 "|((" QUIRE_H16 ":){0,6}" QUIRE_H16 ")?::"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//" QUIRE_AUTHORITY "(/" QUIRE_PCHAR "*)*|/(" QUIRE_PCHAR "+(/" QUIRE_PCHAR
            "*)*)?|(" QUIRE_PCHAR "+(/" QUIRE_PCHAR "*)*)?)" QUIRE_TAIL},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
    {"relative-json-pointer", "(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)"},
    {"idn-email", nullptr},
    {"idn-hostname", nullptr},
    {"iri", nullptr},
    {"iri-reference", nullptr},
    {"uri-reference", nullptr},
    {"uri-template", nullptr},
    {"regex", nullptr},
};

absl::StatusOr<CharNfa> PatternNfa(const std::string& pattern, Budget* budget) {
  auto expression = ParseRegex(pattern, RegexDialect::kEcmaScript, budget->limits().max_depth);
  if (!expression.ok()) {
    return absl::Status(expression.status().code(),
                        absl::StrCat("schema: 'pattern': ", std::string(expression.status().message())));
  }
  return CharNfa::Create(*expression, CharNfa::Match::kSearch, budget);
}

// Strings of min to max characters.
absl::StatusOr<CharDfa> LengthDfa(int64_t min, std::optional<int64_t> max, Budget* budget) {
  const int64_t states = max ? *max + 1 : min + 1;
  QUIRE_RETURN_IF_ERROR(budget->SpendStates(states));
  std::vector<int32_t> targets;
  std::vector<bool> accepting;
  for (int64_t i = 0; i < states; ++i) {
    accepting.push_back(i >= min);
    targets.push_back(static_cast<int32_t>(i + 1 < states ? i + 1 : max ? -1 : i));
  }
  return CharDfa({CharSet::All()}, std::move(targets), std::move(accepting));
}

}  // namespace

absl::StatusOr<std::optional<std::string>> FormatPattern(const std::string& format) {
  for (const Format& known : kFormats) {
    if (format != known.name) continue;
    if (known.pattern == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("schema: 'format' ", format, " is not supported"));
    }
    return absl::StrCat("^(", known.pattern, ")$");
  }
  return std::nullopt;
}

absl::StatusOr<CharDfa> StringDfa(const StringDemand& demand, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(CharDfa strings, LengthDfa(demand.min_length, demand.max_length, budget));
  for (const std::string& pattern : demand.patterns) {
    QUIRE_ASSIGN_OR_RETURN(const CharNfa nfa, PatternNfa(pattern, budget));
    QUIRE_ASSIGN_OR_RETURN(const CharDfa dfa, CharDfa::Create(nfa, budget));
    QUIRE_ASSIGN_OR_RETURN(strings, CharDfa::Intersection(strings, dfa, budget));
  }
  return strings;
}

absl::Status AddString(const StringDemand& demand, int32_t free_char, int32_t from, int32_t to,
                       NetworkBuilder* builder) {
  QUIRE_ASSIGN_OR_RETURN(const int32_t begin, builder->AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, builder->AddState());
  builder->AddBytes(from, '"', '"', begin);
  builder->AddBytes(end, '"', '"', to);
  if (demand.patterns.empty()) {
    if (demand.max_length && *demand.max_length < demand.min_length) return absl::OkStatus();  // no string
    return builder->AddExpression(begin,
                                  Expression::Repeat(Expression::Rule(free_char), demand.min_length,
                                                     demand.max_length.value_or(Expression::kUnlimited)),
                                  Encoding::kUtf8, end);
  }
  if (demand.patterns.size() == 1 && demand.min_length == 0 && !demand.max_length) {
    QUIRE_ASSIGN_OR_RETURN(const CharNfa nfa, PatternNfa(demand.patterns[0], &builder->budget()));
    return nfa.AddTo(begin, Encoding::kJson, end, builder);
  }
  QUIRE_ASSIGN_OR_RETURN(const CharDfa dfa, StringDfa(demand, &builder->budget()));
  return dfa.AddTo(begin, Encoding::kJson, end, builder);
}

}  // namespace quire::constraint
