#include "tests/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIMT_ASAN 1
#else
#define SIMT_ASAN 0
#endif

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64"
#endif

// Saves the callee-saved registers and the stack pointer, takes those of the other side.
extern "C" void QuireSimtSwitch(void** save_stack_pointer, void* new_stack_pointer);
asm(R"(
.text
.p2align 4
.globl QuireSimtSwitch
.type QuireSimtSwitch,@function
QuireSimtSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size QuireSimtSwitch,.-QuireSimtSwitch
.section .note.GNU-stack,"",@progbits
.text
)");

namespace quire::simt {
namespace {

constexpr size_t kStackBytes = SIMT_ASAN ? 512 * 1024 : 128 * 1024;  // touched pages count, not these

}  // namespace

void Fiber::Start(void (*entry)()) {
  if (stack_ == nullptr) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
      std::perror("stack of a lane");
      std::abort();
    }
    stack_ = static_cast<unsigned char*>(memory) + page;
    stack_bytes_ = kStackBytes;
  }
#if SIMT_ASAN
  __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  fake_stack_ = nullptr;
  // From the top: padding, the return address, six registers. The entry finds the stack aligned as after a call.
  auto* top = reinterpret_cast<uint64_t*>(stack_ + stack_bytes_);
  for (int i = 1; i <= 8; ++i) top[-i] = 0;
  top[-2] = reinterpret_cast<uint64_t>(entry);
  stack_pointer_ = top - 8;
}

void Fiber::SwitchFrom(Fiber& from, [[maybe_unused]] bool last) {
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack_, stack_, stack_bytes_);
#endif
  QuireSimtSwitch(&from.stack_pointer_, stack_pointer_);
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::Entered([[maybe_unused]] Fiber& main) {
#if SIMT_ASAN
  const void* bottom = nullptr;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &main.stack_bytes_);
  main.stack_ = static_cast<unsigned char*>(const_cast<void*>(bottom));
#endif
}

}  // namespace quire::simt
