#pragma once

#include "model/chat/chat_template.h"
#include "nlohmann/json.hpp"

namespace quire {

// A message of a request as the template wants it: content that is null, missing or empty looks the same, parts of
// text are joined unless the template iterates them, arguments of calls are objects or text. What does not have the
// expected form stays as it is.
nlohmann::ordered_json NormalizeMessage(nlohmann::ordered_json message, const ChatTemplateFacts& facts);

}  // namespace quire
