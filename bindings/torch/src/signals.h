#pragma once

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace whorl_torch {

// Python runs the handlers of signals on the main thread, between two instructions of the program.
// While that thread waits in here it has to ask. What a handler raises (KeyboardInterrupt) is kept
// while the wait ends, which it does like any that fails, and thrown where control goes back to
// Python.

/// How long the main thread may wait without asking.
inline constexpr std::chrono::milliseconds kSignalSlice{100};

/// Whether Python runs the handlers of signals on the calling thread.
inline bool on_main_thread() { return getpid() == static_cast<pid_t>(syscall(SYS_gettid)); }

namespace detail {
/// Keeps what the handler of a signal has raised on the main thread.
inline std::exception_ptr& raised() {
  static auto* const exception = new std::exception_ptr; // the interpreter ends before statics do
  return *exception;
}
} // namespace detail

/// Runs the handlers of signals that have come, if the calling thread is the one for that; it need
/// not have the interpreter's lock, and holds no other. Whether one has raised an exception, which
/// is then kept for throw_if_interrupted().
inline bool interrupted() {
  if (!on_main_thread() || !Py_IsInitialized()) return false;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return detail::raised() != nullptr;
  detail::raised() = std::make_exception_ptr(pybind11::error_already_set());
  return true;
}

/// Asks interrupted(), not more often than is useful, for whorlSetInterruptCheck().
inline int interrupt_check() {
  if (!on_main_thread()) return 0;
  static std::chrono::steady_clock::time_point next; // of the main thread
  const auto now = std::chrono::steady_clock::now();
  if (now < next) return 0;
  next = now + kSignalSlice;
  return interrupted() ? 1 : 0;
}

/// Throws what a handler has raised during a wait of this thread, if one has.
inline void throw_if_interrupted() {
  if (!on_main_thread() || detail::raised() == nullptr) return;
  std::rethrow_exception(std::exchange(detail::raised(), nullptr));
}

/// Waits for `condition` as its wait_until() does, and asks for signals meanwhile. False at the
/// deadline; throws what a handler raises.
template <class Condition, class Lock, class Deadline, class Predicate>
bool wait_in_slices(Condition& condition, Lock& lock, const Deadline& deadline,
                    const Predicate& ready) {
  if (!on_main_thread()) return condition.wait_until(lock, deadline, ready);
  for (;;) {
    const Deadline slice = std::chrono::steady_clock::now() + kSignalSlice;
    if (condition.wait_until(lock, std::min(slice, deadline), ready)) return true;
    if (slice >= deadline) return false;
    lock.unlock();
    static_cast<void>(interrupted());
    throw_if_interrupted();
    lock.lock();
  }
}

} // namespace whorl_torch
