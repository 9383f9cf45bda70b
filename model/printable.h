#pragma once

#include <string>
#include <string_view>

namespace quire {

// `text` from a file, fit for a message: at most 80 bytes of it, control and non-ASCII bytes escaped.
std::string Printable(std::string_view text);

}  // namespace quire
