#include "model/constraint/network_builder.h"

#include <algorithm>
#include <string>

#include "kernels/base/status_macros.h"
#include "model/constraint/utf8_ranges.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

// A part that is copied for each repetition; a larger one becomes a rule of its own.
bool IsSmall(const Expression& e) {
  return e.kind == Expression::Kind::kChars || e.kind == Expression::Kind::kRule ||
         (e.kind == Expression::Kind::kText && e.text.size() <= 4);
}

constexpr char kShortEscapes[][2] = {{'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'},
                                     {'\t', 't'}, {'"', '"'},  {'\\', '\\'}};

const CharSet& EscapedChars() {
  static const CharSet* const set = new CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  return *set;
}

}  // namespace

int32_t NetworkBuilder::DeclareRule() {
  rules_.emplace_back();
  return static_cast<int32_t>(rules_.size()) - 1;
}

void NetworkBuilder::DefineRule(int32_t rule, int32_t start, int32_t end) { rules_[rule] = {start, end}; }

absl::Status NetworkBuilder::DefineRule(int32_t rule, const Expression& expression, Encoding encoding) {
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, AddState());
  DefineRule(rule, start, end);
  return AddExpression(start, expression, encoding, end);
}

absl::StatusOr<int32_t> NetworkBuilder::AddState() {
  QUIRE_RETURN_IF_ERROR(budget_->SpendStates(1));
  return num_states_++;
}

absl::Status NetworkBuilder::AddText(int32_t from, std::string_view bytes, int32_t to) {
  if (bytes.empty()) AddEpsilon(from, to);
  for (size_t i = 0; i < bytes.size(); ++i) {
    int32_t next = to;
    if (i + 1 < bytes.size()) {
      QUIRE_ASSIGN_OR_RETURN(next, AddState());
    }
    AddBytes(from, static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[i]), next);
    from = next;
  }
  return absl::OkStatus();
}

absl::Status NetworkBuilder::AddChars(int32_t from, const CharSet& chars, Encoding encoding, int32_t to) {
  const CharSet raw = encoding == Encoding::kJson ? chars.Minus(EscapedChars()) : chars;
  for (const CharSet::Range& range : raw.ranges()) {
    if (range.first > 0x7F) break;
    AddBytes(from, static_cast<uint8_t>(range.first), static_cast<uint8_t>(std::min<char32_t>(range.last, 0x7F)), to);
  }
  QUIRE_RETURN_IF_ERROR(budget_->SpendSteps(static_cast<int64_t>(raw.ranges().size())));
  const CharSet beyond = raw.Intersection(CharSet(0x80, 0x10FFFF));
  if (!beyond.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t rule, BeyondAsciiRule(beyond));
    AddRule(from, rule, to);
  }
  if (encoding == Encoding::kJson) return AddEscapes(from, chars.Intersection(EscapedChars()), to);
  return absl::OkStatus();
}

absl::StatusOr<int32_t> NetworkBuilder::BeyondAsciiRule(const CharSet& chars) {
  if (const auto it = beyond_ascii_.find(chars); it != beyond_ascii_.end()) return it->second;
  const int32_t rule = DeclareRule();
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, AddState());
  DefineRule(rule, start, end);
  // Sequences with the same bytes before their last ones share them: neighbours mostly do.
  absl::flat_hash_map<std::pair<int32_t, uint32_t>, int32_t> shared;
  for (const CharSet::Range& range : chars.ranges()) {
    for (const Utf8Sequence& sequence : Utf8Sequences(range.first, range.last)) {
      int32_t from = start;
      for (int i = 0; i < sequence.size; ++i) {
        const Utf8Sequence::Bytes bytes = sequence.bytes[i];
        if (i + 1 == sequence.size) {
          AddBytes(from, bytes.first, bytes.last, end);
          break;
        }
        const auto [it, is_new] = shared.try_emplace({from, bytes.first << 8 | bytes.last}, 0);
        if (is_new) {
          QUIRE_ASSIGN_OR_RETURN(it->second, AddState());
          AddBytes(from, bytes.first, bytes.last, it->second);
        }
        from = it->second;
      }
    }
  }
  beyond_ascii_.emplace(chars, rule);
  return rule;
}

absl::Status NetworkBuilder::AddEscapes(int32_t from, const CharSet& chars, int32_t to) {
  if (chars.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const int32_t backslash, AddState());
  AddBytes(from, '\\', '\\', backslash);
  for (const auto& [c, letter] : kShortEscapes) {
    if (chars.Contains(static_cast<unsigned char>(c))) {
      AddBytes(backslash, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
    }
  }
  for (char32_t c = 0; c < 0x20; ++c) {
    const bool has_short = c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t';
    if (has_short || !chars.Contains(c)) continue;
    const char digit = "0123456789abcdef"[c & 15];
    QUIRE_RETURN_IF_ERROR(AddText(backslash, std::string("u00") + (c < 16 ? '0' : '1') + digit, to));
  }
  return absl::OkStatus();
}

absl::Status NetworkBuilder::AddExpression(int32_t from, const Expression& expression, Encoding encoding, int32_t to) {
  QUIRE_RETURN_IF_ERROR(budget_->SpendSteps(1));
  switch (expression.kind) {
    case Expression::Kind::kText:
      if (encoding == Encoding::kUtf8) return AddText(from, expression.text, to);
      for (size_t offset = 0; offset < expression.text.size();) {
        const char32_t c = utf8::Decode(expression.text, &offset);
        QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
        QUIRE_RETURN_IF_ERROR(AddChars(from, CharSet(c, c), encoding, next));
        from = next;
      }
      AddEpsilon(from, to);
      return absl::OkStatus();
    case Expression::Kind::kChars:
      return AddChars(from, expression.chars, encoding, to);
    case Expression::Kind::kConcat:
      for (const Expression& part : expression.parts) {
        QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
        QUIRE_RETURN_IF_ERROR(AddExpression(from, part, encoding, next));
        from = next;
      }
      AddEpsilon(from, to);
      return absl::OkStatus();
    case Expression::Kind::kChoice:
      for (const Expression& part : expression.parts) {
        QUIRE_RETURN_IF_ERROR(AddExpression(from, part, encoding, to));
      }
      return absl::OkStatus();
    case Expression::Kind::kRepeat:
      return AddRepeat(from, expression, encoding, to);
    case Expression::Kind::kRule:
      AddRule(from, expression.rule, to);
      return absl::OkStatus();
    case Expression::Kind::kBegin:
    case Expression::Kind::kEnd:
    case Expression::Kind::kEndOrFinalNewline:
      break;
  }
  return absl::InternalError("an anchor outside a regular expression");
}

absl::Status NetworkBuilder::AddRepeat(int32_t from, const Expression& expression, Encoding encoding, int32_t to) {
  const bool unlimited = expression.max == Expression::kUnlimited;
  const int64_t copies = unlimited ? expression.min : expression.max;
  const Expression* part = &expression.parts[0];
  Expression call;
  if (copies + unlimited > 1 && !IsSmall(*part)) {
    call = Expression::Rule(DeclareRule());
    QUIRE_RETURN_IF_ERROR(DefineRule(call.rule, *part, encoding));
    part = &call;
  }
  for (int64_t i = 0; i < copies; ++i) {
    if (i >= expression.min) AddEpsilon(from, to);
    QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
    QUIRE_RETURN_IF_ERROR(AddExpression(from, *part, encoding, next));
    from = next;
  }
  if (unlimited) {
    // A state of its own for the loop: `from` may have other edges into or out of it.
    QUIRE_ASSIGN_OR_RETURN(const int32_t loop, AddState());
    AddEpsilon(from, loop);
    QUIRE_RETURN_IF_ERROR(AddExpression(loop, *part, encoding, loop));
    from = loop;
  }
  AddEpsilon(from, to);
  return absl::OkStatus();
}

absl::Status NetworkBuilder::AddTexts(int32_t from, std::vector<std::string> texts, int32_t to) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return AddSortedTexts(from, texts, 0, to);
}

absl::Status NetworkBuilder::AddSortedTexts(int32_t from, absl::Span<const std::string> texts, size_t depth,
                                            int32_t to) {
  // A stack, not recursion: texts may be long.
  struct Group {
    int32_t from;
    absl::Span<const std::string> texts;
    size_t depth;
  };
  std::vector<Group> groups = {{from, texts, depth}};
  while (!groups.empty()) {
    const Group group = groups.back();
    groups.pop_back();
    if (group.texts.size() == 1) {
      QUIRE_RETURN_IF_ERROR(AddText(group.from, std::string_view(group.texts[0]).substr(group.depth), to));
      continue;
    }
    for (size_t i = 0; i < group.texts.size();) {
      if (group.texts[i].size() == group.depth) {
        AddEpsilon(group.from, to);
        ++i;
        continue;
      }
      const char byte = group.texts[i][group.depth];
      size_t end = i + 1;
      while (end < group.texts.size() && group.texts[end][group.depth] == byte) ++end;
      QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
      AddBytes(group.from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), next);
      groups.push_back({next, group.texts.subspan(i, end - i), group.depth + 1});
      i = end;
    }
  }
  return absl::OkStatus();
}

absl::Status DefineFreeJsonChar(int32_t rule, NetworkBuilder* builder) {
  const auto chars = [](char32_t first, char32_t last) { return Expression::Chars(CharSet(first, last)); };
  const auto hex = [&] { return Expression::Chars(CharSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}})); };
  const auto set = [](const char* members) {
    std::vector<CharSet::Range> ranges;
    for (const char* c = members; *c != 0; ++c)
      ranges.push_back({static_cast<char32_t>(*c), static_cast<char32_t>(*c)});
    return Expression::Chars(CharSet(std::move(ranges)));
  };
  // \uXXXX: no surrogate, or a pair of them.
  Expression unicode = Expression::Concat(
      {Expression::Text("u"),
       Expression::Choice({Expression::Concat({set("0123456789ABCEFabcef"), hex(), hex(), hex()}),
                           Expression::Concat({set("Dd"), chars('0', '7'), hex(), hex()}),
                           Expression::Concat({set("Dd"), set("89ABab"), hex(), hex(), Expression::Text("\\u"),
                                               set("Dd"), set("CDEFcdef"), hex(), hex()})})});
  return builder->DefineRule(
      rule, Expression::Choice({Expression::Chars(EscapedChars().Complement()),
                                Expression::Concat({Expression::Text("\\"),
                                                    Expression::Choice({set("\"\\/bfnrt"), std::move(unicode)})})}));
}

}  // namespace quire::constraint
