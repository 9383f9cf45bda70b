#include "model/printable.h"

#include <cstddef>

#include "absl/strings/escaping.h"

namespace quire {

std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  const std::string_view shown = text.substr(0, kMaxBytes);
  std::string escaped = absl::CHexEscape({shown.data(), shown.size()});
  if (shown.size() < text.size()) escaped += "...";
  return escaped;
}

}  // namespace quire
