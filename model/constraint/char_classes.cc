#include "model/constraint/char_classes.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "utf8proc.h"

namespace quire::constraint {
namespace {

constexpr int kNumCategories = UTF8PROC_CATEGORY_CO + 1;

// The characters of each general category, by utf8proc's number.
const std::array<CharSet, kNumCategories>& Categories() {
  static const auto* const categories = [] {
    std::array<std::vector<CharSet::Range>, kNumCategories> ranges;
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
      auto& of_category = ranges[utf8proc_category(static_cast<utf8proc_int32_t>(c))];
      if (!of_category.empty() && of_category.back().last + 1 == c) {
        of_category.back().last = c;
      } else {
        of_category.push_back({c, c});
      }
    }
    auto* sets = new std::array<CharSet, kNumCategories>;
    for (int i = 0; i < kNumCategories; ++i) (*sets)[i] = CharSet(std::move(ranges[i]));
    return sets;
  }();
  return *categories;
}

constexpr std::string_view kNames[kNumCategories] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                     "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                     "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// str.isspace: categories Z, and controls that separate.
const CharSet& PythonSpace() {
  static const CharSet* const set = new CharSet({{9, 13},
                                                 {0x1C, 0x20},
                                                 {0x85, 0x85},
                                                 {0xA0, 0xA0},
                                                 {0x1680, 0x1680},
                                                 {0x2000, 0x200A},
                                                 {0x2028, 0x2029},
                                                 {0x202F, 0x202F},
                                                 {0x205F, 0x205F},
                                                 {0x3000, 0x3000}});
  return *set;
}
const CharSet& EcmaSpace() {
  static const CharSet* const set = new CharSet({{9, 13},
                                                 {0x20, 0x20},
                                                 {0xA0, 0xA0},
                                                 {0x1680, 0x1680},
                                                 {0x2000, 0x200A},
                                                 {0x2028, 0x2029},
                                                 {0x202F, 0x202F},
                                                 {0x205F, 0x205F},
                                                 {0x3000, 0x3000},
                                                 {0xFEFF, 0xFEFF}});
  return *set;
}
const CharSet& PythonWord() {
  static const CharSet* const set =
      new CharSet(GeneralCategory("L")->Union(*GeneralCategory("N")).Union(CharSet('_', '_')));
  return *set;
}
const CharSet& EcmaWord() {
  static const CharSet* const set = new CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return *set;
}
const CharSet& EcmaDigit() {
  static const CharSet* const set = new CharSet('0', '9');
  return *set;
}

}  // namespace

const CharSet& ClassOf(char letter, RegexDialect dialect) {
  const bool python = dialect == RegexDialect::kPython;
  switch (letter) {
    case 'd':
      return python ? Categories()[UTF8PROC_CATEGORY_ND] : EcmaDigit();
    case 'w':
      return python ? PythonWord() : EcmaWord();
    default:
      return python ? PythonSpace() : EcmaSpace();
  }
}

std::optional<CharSet> GeneralCategory(std::string_view name) {
  std::vector<CharSet::Range> ranges;
  for (int i = 0; i < kNumCategories; ++i) {
    if (name.empty() || kNames[i].substr(0, name.size()) != name) continue;
    const auto& of_category = Categories()[i].ranges();
    ranges.insert(ranges.end(), of_category.begin(), of_category.end());
  }
  if (ranges.empty()) return std::nullopt;
  return CharSet(std::move(ranges));
}

}  // namespace quire::constraint
