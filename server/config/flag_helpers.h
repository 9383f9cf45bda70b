#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

// Small additions to CLI11 shared by the files of this folder. CLI11 reports by throwing; ReportParseError catches.
namespace quire {

// Ends parsing: "--name: 'value' is not allowed; <limit>".
[[noreturn]] inline void RefuseValue(const std::string& name, const std::string& value, const std::string& limit) {
  throw CLI::ValidationError(absl::StrCat(name, ": '", value, "' is not allowed; must be ", limit));
}

// An integer in [min, max].
template <typename T>
CLI::Option* AddIntFlag(CLI::App& app, const std::string& name, T& value, int64_t min, int64_t max,
                        const std::string& description) {
  return app
      .add_option_function<int64_t>(
          name,
          [&value, name, min, max](int64_t given) {
            if (given < min || given > max)
              RefuseValue(name, absl::StrCat(given), absl::StrCat("in [", min, ", ", max, "]"));
            value = static_cast<T>(given);
          },
          description)
      ->type_name("INT")
      ->default_function([&value] { return absl::StrCat(value); });
}

// Seconds, fractions allowed, in [min, max].
inline CLI::Option* AddSecondsFlag(CLI::App& app, const std::string& name, absl::Duration& value, double min,
                                   double max, const std::string& description) {
  return app
      .add_option_function<double>(
          name,
          [&value, name, min, max](double given) {
            if (!(given >= min && given <= max))
              RefuseValue(name, absl::StrCat(given), absl::StrCat("in [", min, ", ", max, "]"));
            value = absl::Seconds(given);
          },
          description)
      ->type_name("SECONDS")
      ->default_str(absl::StrCat(absl::ToDoubleSeconds(value)));
}

}  // namespace quire
