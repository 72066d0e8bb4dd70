#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>

namespace whorl::simulation {

/// Stack of its own for a function, which the program's only thread runs until the function
/// suspends itself. A fibre that is never resumed again is as good as dead: nothing unwinds it.
class Fibre {
 public:
  Fibre();
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  /// Gives the fibre a function, which begins at the next resume(). Whatever the fibre was doing is
  /// abandoned.
  void start(std::function<void()> body);
  /// Runs the fibre until it suspends itself or its function returns.
  void resume();
  /// Returns from the fibre to resume(). Called on the fibre.
  void suspend();
  /// Whether the function has returned.
  bool ended() const noexcept { return ended_; }

 private:
  static void enter() noexcept;

  std::byte* stack_; ///< a guard page, then the stack
  std::function<void()> body_;
  std::jmp_buf own_, resumer_;
  bool begun_ = false;
  bool ended_ = true;
};

} // namespace whorl::simulation
