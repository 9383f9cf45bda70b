#include "server/cli/format.h"

#include <array>

#include "absl/strings/str_format.h"

namespace quire::cli {

std::string JsonLine(const Json& json) {
  return json.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes) : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

double Percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace quire::cli
