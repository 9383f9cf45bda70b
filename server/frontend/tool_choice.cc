#include "server/frontend/tool_choice.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using constraint::CallSyntax;

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// How a family writes calls; kInvalidArgument for none.
absl::StatusOr<CallSyntax> FormOfCalls(ToolSyntax syntax) {
  CallSyntax form;
  form.name_before = "{\"name\": ";
  form.arguments_before = ", \"arguments\": ";
  form.call_after = "}";
  switch (syntax) {
    case ToolSyntax::kNone:
      return InvalidField("tool_choice", "cannot require a call: how this model writes calls is not known");
    case ToolSyntax::kHermes:
      form.before = "<tool_call>\n";
      form.between = "\n</tool_call>\n<tool_call>\n";
      form.after = "\n</tool_call>";
      break;
    case ToolSyntax::kLlamaJson:
      form.between = "; ";
      form.arguments_before = ", \"parameters\": ";
      break;
    case ToolSyntax::kMistral:
      form.before = "[TOOL_CALLS][";
      form.between = ", ";
      form.after = "]";
      break;
    case ToolSyntax::kPythonic:
      form.arguments = CallSyntax::Arguments::kPython;
      form.before = "[";
      form.between = ", ";
      form.after = "]";
      form.name_before = "";
      form.arguments_before = "(";
      form.call_after = ")";
      break;
  }
  return form;
}

bool IsPythonName(std::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
         });
}

// NAME of {"type": "function", "function": {"name": NAME}}; null for anything else.
const std::string* NameOfFunction(const Json& value) {
  const Json* const type = Member(value, "type");
  const Json* const function = Member(value, "function");
  const Json* const name = function == nullptr ? nullptr : Member(*function, "name");
  const bool is_name = type != nullptr && *type == "function" && name != nullptr && name->is_string() && *name != "";
  return is_name ? &name->get_ref<const std::string&>() : nullptr;
}

absl::Status ReadAllowedTools(const Json& allowed, ChatPrompt* prompt) {
  const Json* const mode = Member(allowed, "mode");
  const bool is_required = mode != nullptr && *mode == "required";
  if (!is_required && (mode == nullptr || *mode != "auto"))
    return InvalidField("tool_choice.allowed_tools.mode", "must be 'auto' or 'required'");
  const Json* const tools = Member(allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty())
    return InvalidField("tool_choice.allowed_tools.tools", "must be a list of at least one tool");
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string* const name = NameOfFunction((*tools)[i]);
    if (name == nullptr) {
      return InvalidField(absl::StrCat("tool_choice.allowed_tools.tools[", i, "]"),
                          "must be {\"type\": \"function\", \"function\": {\"name\": NAME}}");
    }
    prompt->allowed_tools.insert(*name);
  }
  prompt->tool_choice = is_required ? ToolChoice::kRequired : ToolChoice::kAuto;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadToolChoice(const Json& value, ChatPrompt* prompt) {
  const std::pair<const char*, ToolChoice> kWords[] = {
      {"auto", ToolChoice::kAuto}, {"none", ToolChoice::kNone}, {"required", ToolChoice::kRequired}};
  for (const auto& [word, choice] : kWords) {
    if (value != word) continue;
    prompt->tool_choice = choice;
    return absl::OkStatus();
  }
  const Json* const type = Member(value, "type");
  const Json* const allowed = Member(value, "allowed_tools");
  if (type != nullptr && *type == "allowed_tools" && allowed != nullptr) return ReadAllowedTools(*allowed, prompt);
  const std::string* const name = NameOfFunction(value);
  if (name == nullptr) {
    return InvalidField(
        "tool_choice",
        "must be 'auto', 'none', 'required', {\"type\": \"function\", \"function\": {\"name\": NAME}} or "
        "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": MODE, \"tools\": [...]}}");
  }
  prompt->tool_choice = ToolChoice::kRequired;
  prompt->tool_name = *name;
  return absl::OkStatus();
}

absl::StatusOr<StructuredOutput> RequireToolCall(const ChatPrompt& prompt, ToolSyntax syntax) {
  if (!prompt.tools.is_array() || prompt.tools.empty())
    return InvalidField("tool_choice", "requires a call, which needs tools");
  QUIRE_ASSIGN_OR_RETURN(CallSyntax form, FormOfCalls(syntax));
  for (const Json& tool : prompt.tools) {
    const Json& function = tool["function"];
    const std::string& name = function["name"].get_ref<const std::string&>();
    if (!prompt.tool_name.empty() && name != prompt.tool_name) continue;
    if (!prompt.Allows(name)) continue;
    if (form.arguments == CallSyntax::Arguments::kPython && !IsPythonName(name)) {
      return InvalidField("tools", absl::StrCat(Quoted(name),
                                                " cannot be called by this model, which writes calls as "
                                                "Python's; use letters, digits and underscores"));
    }
    const Json* const parameters = Member(function, "parameters");
    form.functions.push_back({name, parameters == nullptr ? "{}" : parameters->dump()});
  }
  if (form.functions.empty())
    return InvalidField("tool_choice", absl::StrCat(Quoted(prompt.tool_name), " is none of the tools"));
  form.repeats = prompt.parallel_tool_calls && prompt.tool_name.empty();
  StructuredOutput out;
  out.kind = StructuredOutput::Kind::kCalls;
  out.calls = std::move(form);
  out.field = "tools";
  return out;
}

constraint::Reasoning ReasoningBefore(ReasoningSyntax syntax) {
  switch (syntax) {
    case ReasoningSyntax::kNone:
      break;
    case ReasoningSyntax::kThink:
      return constraint::Reasoning::kMayCome;
    case ReasoningSyntax::kThinkStarted:
      return constraint::Reasoning::kIsOpen;
  }
  return constraint::Reasoning::kNone;
}

}  // namespace quire
