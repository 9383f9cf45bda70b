#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

// continue_final_message as transformers does it: a mark at the end of the last message's text (of its last text
// part), a rendering, and a cut at the mark.

// Appends the mark. Returns the text before it. kInvalidArgument if there is no message or no text in it.
absl::StatusOr<std::string> MarkFinalMessage(nlohmann::ordered_json* messages);

// `rendered` up to the mark; white space before it goes as well if the template stripped the mark's own.
// kInvalidArgument if the template did not render the message whose text is `final_text`.
absl::StatusOr<std::string> CutAtMark(std::string_view rendered, std::string_view final_text);

}  // namespace quire
