#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "nlohmann/json.hpp"

namespace quire {

enum class ToolChoice : uint8_t {
  kAuto,      // the model decides; calls are found in its reply
  kNone,      // the model is not told of the tools
  kRequired,  // the reply is a call
};

// A conversation in place of the text of a prompt: what the model's chat template makes a text of. As OpenAI's API has
// it; ChatFormat checks it.
struct ChatPrompt {
  nlohmann::ordered_json messages;         // array of {role, content, ...}
  nlohmann::ordered_json tools;            // array of {type: "function", function: {name, ...}}, or null
  nlohmann::ordered_json documents;        // array, or null
  nlohmann::ordered_json template_kwargs;  // further names for the template: an object, or null
  std::optional<std::string> chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;                // with kRequired: of the tool that is called; empty: any
  std::set<std::string> allowed_tools;  // with kAuto and kRequired: the tools that the model is told of; empty: all
  bool parallel_tool_calls = true;  // false: only the first call of a reply counts; with kRequired there is no other
  int64_t bytes = 0;                // of the request, about: what waits in a queue

  bool Allows(const std::string& tool) const { return allowed_tools.empty() || allowed_tools.contains(tool); }
};

}  // namespace quire
