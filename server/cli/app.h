#pragma once

#include <string>
#include <vector>

#include "server/cli/session.h"

namespace quire::cli {

// The whole of `quire`: parses `args` (without the program's name), runs the subcommand, returns the exit code. Reads
// QUIRE_SERVER from the environment.
int RunQuire(const std::vector<std::string>& args, Session& session);

}  // namespace quire::cli
