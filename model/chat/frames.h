#pragma once

#include "model/chat/ast.h"

namespace quire::jinja {

// Fills Frame::hidden of all frames of a program: jinja2 decides when it compiles which variables a frame has of its
// own. A name that a frame assigns before it reads it, and that no frame around it mentions, is the frame's from its
// beginning: until the assignment it is undefined in the frames within, even if the context has it.
void ResolveFrames(Program* program);

}  // namespace quire::jinja
