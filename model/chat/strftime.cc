#include "model/chat/strftime.h"

#include <array>

#include "absl/strings/str_format.h"
#include "model/chat/cat.h"

namespace quire::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                                   "Friday", "Saturday", "Sunday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

// Monday 0.
int Weekday(absl::CivilDay day) { return static_cast<int>(absl::GetWeekday(day)); }

// Week of the year whose first week starts with the first `first` day (0 Monday, 6 Sunday).
int Week(absl::CivilDay day, int first) {
  const int since = (Weekday(day) - first + 7) % 7;
  return (absl::GetYearDay(day) - 1 + 7 - since) / 7;
}

// ISO 8601: the year and week of the Thursday in the same week.
absl::CivilDay IsoThursday(absl::CivilDay day) { return day + (3 - Weekday(day)); }

int64_t Seconds(absl::CivilSecond time) { return time - absl::CivilSecond(1970, 1, 1); }

// Pads as the flag asks: 0, _ or - after the percent sign.
std::string Number(int64_t value, int width, char flag, char usual) {
  const char pad = flag == '\0' ? usual : flag;
  if (pad == '-') return Cat(value);
  if (pad == '_') return absl::StrFormat("%*d", width, value);
  return absl::StrFormat("%0*d", width, value);
}

std::string Convert(char conversion, char flag, absl::CivilSecond time);

std::string Sequence(std::string_view format, absl::CivilSecond time) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      out += Convert(format[++i], '\0', time);
    } else {
      out += format[i];
    }
  }
  return out;
}

std::string Convert(char conversion, char flag, absl::CivilSecond time) {
  const absl::CivilDay day(time);
  const int weekday = Weekday(day);
  const int hour12 = time.hour() % 12 == 0 ? 12 : time.hour() % 12;
  const auto number = [flag](int64_t value, int width, char usual = '0') { return Number(value, width, flag, usual); };
  const std::string_view day_name = kDays[static_cast<size_t>(weekday)];
  const std::string_view month_name = kMonths[static_cast<size_t>(time.month() - 1)];
  switch (conversion) {
    case 'a':
      return std::string(day_name.substr(0, 3));
    case 'A':
      return std::string(day_name);
    case 'b':
    case 'h':
      return std::string(month_name.substr(0, 3));
    case 'B':
      return std::string(month_name);
    case 'c':
      return Sequence("%a %b %e %H:%M:%S %Y", time);
    case 'C':
      return number(time.year() / 100, 2);
    case 'd':
      return number(time.day(), 2);
    case 'D':
    case 'x':
      return Sequence("%m/%d/%y", time);
    case 'e':
      return number(time.day(), 2, '_');
    case 'f':
      return "000000";
    case 'F':
      return Sequence("%Y-%m-%d", time);
    case 'g':
      return number(IsoThursday(day).year() % 100, 2);
    case 'G':
      return number(IsoThursday(day).year(), 4, '-');
    case 'H':
      return number(time.hour(), 2);
    case 'I':
      return number(hour12, 2);
    case 'j':
      return number(absl::GetYearDay(day), 3);
    case 'k':
      return number(time.hour(), 2, '_');
    case 'l':
      return number(hour12, 2, '_');
    case 'm':
      return number(time.month(), 2);
    case 'M':
      return number(time.minute(), 2);
    case 'n':
      return "\n";
    case 'p':
      return time.hour() < 12 ? "AM" : "PM";
    case 'P':
      return time.hour() < 12 ? "am" : "pm";
    case 'r':
      return Sequence("%I:%M:%S %p", time);
    case 'R':
      return Sequence("%H:%M", time);
    case 's':
      return Cat(Seconds(time));
    case 'S':
      return number(time.second(), 2);
    case 't':
      return "\t";
    case 'T':
    case 'X':
      return Sequence("%H:%M:%S", time);
    case 'u':
      return number(weekday + 1, 1);
    case 'U':
      return number(Week(day, 6), 2);
    case 'V':
      return number((absl::GetYearDay(IsoThursday(day)) - 1) / 7 + 1, 2);
    case 'w':
      return number((weekday + 1) % 7, 1);
    case 'W':
      return number(Week(day, 0), 2);
    case 'y':
      return number(time.year() % 100, 2);
    case 'Y':
      return number(time.year(), 4, '-');
    case 'z':
    case 'Z':
      return "";
    case '%':
      return "%";
    default:
      return std::string();
  }
}

constexpr std::string_view kConversions = "aAbBcCdDeFfgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";

}  // namespace

std::string FormatTime(Budget& budget, std::string_view format, absl::CivilSecond time) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      budget.Append(format.substr(i, 1), &out);
      continue;
    }
    size_t at = i + 1;
    char flag = '\0';
    if (at < format.size() && (format[at] == '-' || format[at] == '_' || format[at] == '0')) flag = format[at++];
    if (at < format.size() && (format[at] == 'E' || format[at] == 'O')) ++at;  // other calendars and digits: as without
    if (at < format.size() && kConversions.find(format[at]) != std::string_view::npos) {
      budget.Append(Convert(format[at], flag, time), &out);
      i = at;
    } else {
      budget.Append("%", &out);  // unknown: as it stands
    }
  }
  return out;
}

}  // namespace quire::jinja
