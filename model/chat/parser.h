#pragma once

#include <string_view>

#include "model/chat/ast.h"

namespace quire::jinja {

// Throws TemplateError of kind kSyntax with the line. Nesting and chains of operators are bounded.
// Filters and tests must exist unless an {% if %} or a conditional expression guards them, as in jinja2.
Program Parse(std::string_view source);

}  // namespace quire::jinja
