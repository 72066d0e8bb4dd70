// A fortified longjmp() refuses to jump to another stack.
#undef _FORTIFY_SOURCE
#include "simulation/fibre.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <new>
#include <utility>

namespace whorl::simulation {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStackBytes = 256 * 1024;

/// Fibre that enter() begins to run: makecontext() passes no pointers.
Fibre* beginner; // NOLINT: there is one thread

} // namespace

Fibre::Fibre() {
  void* const memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(memory);
  mprotect(memory, kGuardBytes, PROT_NONE);
}

Fibre::~Fibre() { munmap(stack_, kGuardBytes + kStackBytes); }

void Fibre::start(std::function<void()> body) {
  // An abandoned function owns memory of a run that is over.
  if (!ended_) static_cast<void>(new std::function<void()>(std::move(body_)));
  body_ = std::move(body);
  begun_ = ended_ = false;
}

void Fibre::enter() noexcept {
  Fibre& self = *beginner;
  self.body_();
  self.body_ = nullptr; // while the objects are there to which it refers
  self.ended_ = true;
  self.suspend();
}

// ucontext makes the first switch to a stack. The others are jumps, because swapcontext() enters
// the kernel for the signal mask each time.
void Fibre::resume() {
  if (_setjmp(resumer_) != 0) return;
  if (begun_) _longjmp(own_, 1);
  begun_ = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack_ + kGuardBytes;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, &Fibre::enter, 0);
  beginner = this;
  setcontext(&context);
}

void Fibre::suspend() {
  if (_setjmp(own_) == 0) _longjmp(resumer_, 1);
}

} // namespace whorl::simulation
