#include "server/cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "kernels/base/check.h"

namespace quire::cli {
namespace {

constexpr char kInterrupted = 'i';
constexpr char kEnd = 'e';

// A signal handler may do little more than write to a pipe.
int pipe_ends[2] = {-1, -1};
struct sigaction old_interrupt, old_terminate;

void OnSignal(int) {
  const int saved_errno = errno;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  [[maybe_unused]] const ssize_t written = write(pipe_ends[1], &kInterrupted, 1);
  errno = saved_errno;
}

}  // namespace

InterruptWatch::InterruptWatch(std::function<void()> on_interrupt) : on_interrupt_(std::move(on_interrupt)) {
  QUIRE_CHECK(pipe2(pipe_ends, O_CLOEXEC) == 0);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
  watcher_ = std::thread([this] {
    char byte = kEnd;
    if (read(pipe_ends[0], &byte, 1) == 1 && byte == kInterrupted) on_interrupt_();
  });
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
  QUIRE_CHECK(write(pipe_ends[1], &kEnd, 1) == 1);
  watcher_.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace quire::cli
