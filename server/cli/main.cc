#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "server/cli/app.h"

int main(int argc, char** argv) {
  quire::cli::Session session{std::cin, std::cout, std::cerr};
  session.err_is_terminal = isatty(STDERR_FILENO) == 1;
  session.in_is_terminal = isatty(STDIN_FILENO) == 1;
  return quire::cli::RunQuire(std::vector<std::string>(argv + 1, argv + argc), session);
}
