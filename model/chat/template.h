#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "model/chat/budget.h"
#include "nlohmann/json.hpp"

namespace quire::jinja {

struct Program;

// A Jinja template, compiled once: what jinja2's ImmutableSandboxedEnvironment renders with trim_blocks, lstrip_blocks,
// loop controls, {% generation %} and the functions and filters that transformers adds (raise_exception, strftime_now,
// tojson as json.dumps).
//
// Immutable; any number of threads may render with it at once. Copies share the program.
class Template {
 public:
  // `source` must be UTF-8. kInvalidArgument names the line of a syntax error, or the limit max_template_bytes.
  static absl::StatusOr<Template> Compile(std::string_view source, const Limits& limits = {});

  // Renders with the entries of the object `context` as names; null is none. `now` is what strftime_now tells.
  // kInvalidArgument with the text of raise_exception alone if the template calls it (then IsRaised tells so), else
  // with what is wrong and the line, or the limit that was reached.
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& context, absl::CivilSecond now) const;

  // Whether the template itself raised the error that Render returned.
  static bool IsRaised(const absl::Status& status);

 private:
  Template(std::shared_ptr<const Program> program, const Limits& limits)
      : program_(std::move(program)), limits_(limits) {}

  std::shared_ptr<const Program> program_;  // shared by copies
  Limits limits_;
};

}  // namespace quire::jinja
