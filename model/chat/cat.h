#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace quire::jinja {

// Appends strings and integers. (Debian's absl::StrCat knows no std::string_view.)
template <typename... Parts>
void CatTo(std::string* text, const Parts&... parts) {
  const auto append = [text](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_integral_v<Part> && !std::is_same_v<Part, char>) {
      *text += std::to_string(part);
    } else {
      *text += part;
    }
  };
  (append(parts), ...);
}

template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string text;
  CatTo(&text, parts...);
  return text;
}

}  // namespace quire::jinja
