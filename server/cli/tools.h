#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quire/v1/generation.pb.h"

namespace quire::cli {

// The tools of OpenAI's JSON list, [{"type": "function", "function": {"name", "description", "parameters"}}, ...];
// members of any other name are passed over. kInvalidArgument says where the list is wrong.
absl::StatusOr<std::vector<v1::Tool>> ParseTools(absl::string_view json);

}  // namespace quire::cli
