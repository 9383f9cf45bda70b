#pragma once

#include <string>

#include "nlohmann/json.hpp"

namespace quire::cli {

// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

// "{...}\n", invalid UTF-8 replaced: never throws.
std::string JsonLine(const Json& json);

// "1.5 GiB"
std::string BytesText(double bytes);

// `part` of `whole` in percent; 0 of nothing is 0.
double Percent(double part, double whole);

}  // namespace quire::cli
