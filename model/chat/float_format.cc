#include "model/chat/float_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"

namespace quire::jinja {

std::string FloatFormat(double value, char type, int64_t precision, bool alternate, Budget& budget) {
  const bool upper = absl::ascii_isupper(type);
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  budget.Bytes(std::min(precision, budget.limits().max_output_bytes + 1));
  const char format[] = {'%', '#', '.', '*', type, '\0'};
  const char plain[] = {'%', '.', '*', type, '\0'};
  const auto places = static_cast<int>(std::min<int64_t>(precision, 1 << 30));
  const int size = std::snprintf(nullptr, 0, alternate ? format : plain, places, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), alternate ? format : plain, places, value);
  text.pop_back();
  return text;
}

double RoundFloat(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  char buffer[1600];
  if (digits >= 0) {
    std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
    return std::strtod(buffer, nullptr);
  }
  // All digits of the number, cut where it is rounded.
  const int size = std::snprintf(buffer, sizeof(buffer), "%.1100f", std::abs(value));
  std::string text(buffer, static_cast<size_t>(size));
  const size_t point = text.find('.');
  const auto dropped = static_cast<uint32_t>(-digits);
  std::string whole = std::string(dropped, '0') + text.substr(0, point);
  const std::string rest = whole.substr(whole.size() - dropped) + text.substr(point + 1);
  whole.erase(whole.size() - dropped);
  const bool exact_half = rest[0] == '5' && rest.find_first_not_of('0', 1) == std::string::npos;
  const bool odd = !whole.empty() && (whole.back() - '0') % 2 == 1;
  const bool up = exact_half ? odd : rest[0] >= '5';
  double result = std::strtod((whole + std::string(dropped, '0')).c_str(), nullptr);
  if (up) {
    size_t i = whole.size();
    while (i > 0 && whole[i - 1] == '9') whole[--i] = '0';
    if (i > 0) {
      ++whole[i - 1];
    } else {
      whole.insert(whole.begin(), '1');
    }
    result = std::strtod((whole + std::string(dropped, '0')).c_str(), nullptr);
  }
  return std::copysign(result, value);
}

}  // namespace quire::jinja
