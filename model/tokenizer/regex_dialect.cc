#include "model/tokenizer/regex_dialect.h"

#include <cctype>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "model/printable.h"

namespace quire {
namespace {

absl::Status Differs(std::string_view construct) {
  return absl::UnimplementedError(absl::StrCat("regex construct ", Printable(construct), " is not supported"));
}

// General categories: the properties both engines know by the same name and meaning.
bool IsCategory(std::string_view name) {
  static const auto* const kCategories = new absl::flat_hash_set<std::string_view>{
      "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
      "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
  return kCategories->contains(name);
}

// The escape at the start of `rest` ("\..."). Sets *size to its length.
absl::Status CheckEscape(std::string_view rest, size_t* size) {
  *size = 2;
  if (rest.size() < 2) return absl::InvalidArgumentError("regex ends in a backslash");
  const char c = rest[1];
  if (c == 'p' || c == 'P') {
    const size_t close = rest.find('}');
    if (rest.size() < 3 || rest[2] != '{' || close == rest.npos) return Differs("\\p without {category}");
    std::string_view name = rest.substr(3, close - 3);
    if (!name.empty() && name[0] == '^') name.remove_prefix(1);
    if (!IsCategory(name)) return Differs(rest.substr(0, close + 1));
    *size = close + 1;
    return absl::OkStatus();
  }
  const bool plain = !std::isalnum(static_cast<unsigned char>(c));
  if (plain || std::string_view("sSdDrntfvx").find(c) != std::string_view::npos) return absl::OkStatus();
  return Differs(rest.substr(0, 2));
}

// The group opening at the start of `rest` ("(?...").
absl::Status CheckGroup(std::string_view rest) {
  for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:"}) {
    if (rest.starts_with(known)) return absl::OkStatus();
  }
  return Differs(rest.substr(0, 4));
}

}  // namespace

absl::Status CheckRegexDialect(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\') {
      size_t size = 0;
      if (absl::Status status = CheckEscape(rest, &size); !status.ok()) return status;
      i += size - 1;
    } else if (in_class) {
      if (rest[0] == '[') return Differs("[ inside a class");
      if (rest.starts_with("&&")) return Differs("&& inside a class");
      if (rest[0] == ']') in_class = false;
    } else if (rest[0] == '[') {
      in_class = true;
      if (rest.starts_with("[^")) ++i;
      if (pattern.substr(i + 1).starts_with("]")) return Differs("] first in a class");
    } else if (rest.starts_with("(?")) {
      if (absl::Status status = CheckGroup(rest); !status.ok()) return status;
    } else if (rest.starts_with("(*")) {
      return Differs("(*");
    } else if (rest.starts_with("{,")) {
      return Differs("{,n}");
    } else if (rest[0] == '}' && rest.size() > 1 && rest[1] == '+') {
      return Differs("{n}+");
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
