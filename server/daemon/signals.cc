#include "server/daemon/signals.h"

#include <pthread.h>

#include <utility>

#include "spdlog/spdlog.h"

namespace quire {

Signals::Signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  sigemptyset(&set_);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  thread_ = std::thread([this] { Run(); });
}

Signals::~Signals() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGHUP);
  thread_.join();
}

void Signals::SetEarlyExit(std::function<void()> on_early) {
  absl::MutexLock lock(&mutex_);
  on_early_ = std::move(on_early);
}

void Signals::SetHangup(std::function<void()> on_hangup) {
  absl::MutexLock lock(&mutex_);
  on_hangup_ = std::move(on_hangup);
}

bool Signals::WaitFor(int count, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto reached = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; };
  return mutex_.AwaitWithDeadline(absl::Condition(&reached), deadline);
}

void Signals::Run() {
  for (;;) {
    int signal = 0;
    if (sigwait(&set_, &signal) != 0) continue;
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    if (signal == SIGHUP) {
      if (on_hangup_) on_hangup_();
      continue;
    }
    ++count_;
    spdlog::info("{}: {}", signal == SIGTERM ? "SIGTERM" : "SIGINT", count_ == 1 ? "draining" : "stopping at once");
    if (on_early_) on_early_();
  }
}

}  // namespace quire
