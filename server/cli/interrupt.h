#pragma once

#include <functional>
#include <thread>

namespace quire::cli {

// While it lives, the first SIGINT or SIGTERM of the process calls `on_interrupt` once, from a thread of its own; a
// second one ends the process as usual. At most one at a time.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<void()> on_interrupt);
  ~InterruptWatch();  // restores the handlers; on_interrupt has returned or will never run
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  std::function<void()> on_interrupt_;
  std::thread watcher_;
};

}  // namespace quire::cli
