#pragma once

#include <cstddef>

namespace quire::simt {

// A stack of its own for each lane, switched to by hand (x86-64). In an ASan build switches are announced. A guard page
// lies below the stack.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next SwitchTo enter `entry` on the fiber's stack, which is allocated at the first call.
  void Start(void (*entry)());
  // Leaves `from` and goes on in this one. `last`: `from` will never be resumed.
  void SwitchFrom(Fiber& from, bool last = false);
  // To be called first by `entry`; `main` is the fiber that switched here.
  static void Entered(Fiber& main);

  const unsigned char* stack() const { return stack_; }
  size_t stack_bytes() const { return stack_bytes_; }

 private:
  void* stack_pointer_ = nullptr;
  unsigned char* stack_ = nullptr;  // null: the thread's own
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // ASan's
};

}  // namespace quire::simt
