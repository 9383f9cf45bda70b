#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What a reply of a model is beside the text that was asked for.
namespace quire::constraint {

inline constexpr std::string_view kReasoningBegin = "<think>", kReasoningEnd = "</think>";

// Before the text that a constraint describes.
enum class Reasoning : uint8_t {
  kNone,
  kMayCome,  // <think>, anything, </think>, up to two spaces or newlines; or none of it
  kIsOpen,   // the reply begins inside it
};

// Calls of functions, as a family of models writes them:
//
//     before CALL (between CALL)* after      CALL = name_before NAME arguments_before ARGUMENTS call_after
//
// The spelling of a special token in the six texts of the form stands for that token where the vocabulary has it.
struct CallSyntax {
  enum class Arguments : uint8_t {
    kJson,    // an object; the name is a JSON string
    kPython,  // name=value, as Python's literals, in the order of the schema and none but its properties; the name is
              // written as it is. A required property must have a name of letters, digits and underscores.
  };
  struct Function {
    std::string name;
    std::string parameters;  // a JSON schema; arguments are an object whatever it says
  };

  std::string before, between, after;
  std::string name_before, arguments_before, call_after;
  Arguments arguments = Arguments::kJson;
  bool repeats = false;  // else one call
  std::vector<Function> functions;
};

}  // namespace quire::constraint
