#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

// JSON from a client, keys in their order. kInvalidArgument, a sentence without its subject, for text that is none, for
// more than 100 levels and for more than 4 Mi values: brackets or commas must not become a tree of gigabytes.
absl::StatusOr<nlohmann::ordered_json> ParseJsonText(const std::string& text);

}  // namespace quire
