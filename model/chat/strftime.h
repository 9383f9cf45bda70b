#pragma once

#include <string>
#include <string_view>

#include "absl/time/civil_time.h"
#include "model/chat/budget.h"

namespace quire::jinja {

// datetime.strftime of a time without zone and microseconds, in the C locale: all of glibc's conversions.
std::string FormatTime(Budget& budget, std::string_view format, absl::CivilSecond time);

}  // namespace quire::jinja
