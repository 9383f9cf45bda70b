#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/cli/app.h"

namespace quire::cli {

// What one run of `quire` did.
struct RunResult {
  int exit_code = -1;
  std::string out, err;

  // Output as JSON lines; a broken line ends the list with null.
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    }
    return lines;
  }
};

// Runs the tool in this process.
inline RunResult RunCli(const std::vector<std::string>& args, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out, err;
  Session session{in, out, err};
  RunResult result;
  result.exit_code = RunQuire(args, session);
  result.out = out.str();
  result.err = err.str();
  return result;
}

}  // namespace quire::cli
