#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

// JSON from a client, keys in their order; of equal ones in an object the last counts. kInvalidArgument, a sentence
// without its subject, for text that is none (also for a number beyond doubles, and for half a surrogate pair), for
// more than 100 levels and for more than 4 Mi values: brackets or commas must not become a tree of gigabytes. For more
// than 8 Mi pairs of members of one object, too (4,096 members in one): names are compared with all before them.
absl::StatusOr<nlohmann::ordered_json> ParseJsonText(const std::string& text);

}  // namespace quire
