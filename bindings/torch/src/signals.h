#pragma once

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "bindings/torch/src/deadline.h"

namespace whorl_torch {

// Python runs the handlers of signals on the main thread, between two instructions of the program.
// While that thread waits in this extension it has to look for signals. An exception that a handler
// raises (KeyboardInterrupt) is kept while the wait ends as one that fails, and is thrown where
// control returns to Python.

/// Time for which the main thread may wait without looking for signals.
inline constexpr std::chrono::milliseconds kSignalSlice{100};

/// Returns whether Python runs the handlers of signals on the calling thread.
inline bool on_main_thread() { return getpid() == static_cast<pid_t>(syscall(SYS_gettid)); }

namespace detail {
/// Returns the exception that the handler of a signal has raised on the main thread.
inline std::exception_ptr& raised() {
  static auto* const exception = new std::exception_ptr; // the interpreter ends before statics do
  return *exception;
}
} // namespace detail

/// Runs the handlers of signals that have come, if the calling thread is the main thread. Returns
/// whether a handler has raised an exception, which is kept for throw_if_interrupted(). The caller
/// holds no lock, except perhaps the interpreter's.
inline bool interrupted() {
  if (!on_main_thread() || !Py_IsInitialized()) return false;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return detail::raised() != nullptr;
  detail::raised() = std::make_exception_ptr(pybind11::error_already_set());
  return true;
}

/// Calls interrupted(), at most once in kSignalSlice, for whorlSetInterruptCheck().
inline int interrupt_check() {
  if (!on_main_thread()) return 0;
  static std::chrono::steady_clock::time_point next; // used by the main thread only
  const auto now = std::chrono::steady_clock::now();
  if (now < next) return 0;
  next = now + kSignalSlice;
  return interrupted() ? 1 : 0;
}

/// Throws the exception that a handler has raised during a wait of this thread, if there is one.
inline void throw_if_interrupted() {
  if (!on_main_thread() || detail::raised() == nullptr) return;
  std::rethrow_exception(std::exchange(detail::raised(), nullptr));
}

/// Waits for `condition` as its wait_until() does, and looks for signals meanwhile. Returns false
/// at the deadline; throws what a handler raises.
template <class Condition, class Lock, class Predicate>
bool wait_in_slices(Condition& condition, Lock& lock, Deadline deadline, const Predicate& ready) {
  if (!on_main_thread()) return condition.wait_until(lock, deadline, ready);
  for (;;) {
    const Deadline slice = deadline_in(kSignalSlice);
    if (condition.wait_until(lock, std::min(slice, deadline), ready)) return true;
    if (slice >= deadline) return false;
    lock.unlock();
    static_cast<void>(interrupted());
    throw_if_interrupted();
    lock.lock();
  }
}

} // namespace whorl_torch
