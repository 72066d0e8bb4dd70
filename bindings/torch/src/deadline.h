#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace whorl_torch {

using Deadline = std::chrono::steady_clock::time_point;

/// Returns the end of a time that begins now. Times beyond a year end after a year, because those
/// beyond 292 years are no numbers of the clock.
inline Deadline deadline_in(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() + std::min(time, kYear);
}
inline bool has_passed(Deadline deadline) { return std::chrono::steady_clock::now() >= deadline; }

/// Sequence of sleeps between looks at a condition, each twice as long as the one before, up to a
/// limit.
class Backoff {
 public:
  using Duration = std::chrono::microseconds;
  explicit Backoff(Duration first = Duration(20), Duration limit = Duration(1000))
      : next_(first), limit_(limit) {}
  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 2, limit_);
  }

 private:
  Duration next_;
  const Duration limit_;
};

} // namespace whorl_torch
