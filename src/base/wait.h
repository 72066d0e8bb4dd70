#pragma once

#include <cstdint>

#include "base/comm_error.h"
#include "base/system.h"

namespace whorl {

/// Outcome of one attempt to advance.
enum class Progress : std::uint8_t {
  kIdle,     ///< nothing could be done
  kAdvanced, ///< something was done, more remains
  kDone,     ///< complete
  kFailed,   ///< the error is in the CommError
};

/// Way to block once spinning and yielding have not helped.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// Blocks until something may have changed, at most `max_ns`. May return early for no reason.
  virtual void block(std::uint64_t max_ns) noexcept = 0;
  /// Looks for dead peers and for errors of other ranks, and sets the communicator's CommError if
  /// there are any. Called about once a millisecond while waiting; `waited_ns` is the time without
  /// progress.
  virtual void poll_failures(std::uint64_t waited_ns) noexcept { static_cast<void>(waited_ns); }
};

/// Waiter that sleeps by the clock, for waits on conditions that are changed without notice.
class ClockWaiter final : public Waiter {
 public:
  void block(std::uint64_t max_ns) noexcept override;
};

enum class WaitResult : std::uint8_t {
  kReady,    ///< the attempt returned kDone
  kFailed,   ///< the attempt returned kFailed, or the CommError is set
  kTimedOut, ///< no progress for the whole timeout
};

/// Number of attempts of a wait without pauses between them: most conditions become true within a
/// hundred nanoseconds; a pause takes 20 to 40.
inline constexpr std::uint32_t kEagerAttempts = 8;

/// Limits of one wait.
struct WaitPolicy {
  std::uint64_t timeout_ns; ///< longest time without progress; every kAdvanced starts it anew
  /// Attempts before the first yield. More: a wait that ends soon costs no system call. Fewer:
  /// where two ranks share a core, the peer gets it sooner. Two ranks on one core, 8 bytes: 4 µs
  /// with 20, 8.5 with 100, 19 with 300, 104 with 2000; on two cores 0.55 to 0.65 µs with any of
  /// them (docs/decisions/0003).
  std::uint32_t spins = 20;
  /// Time of yielding before the first sleep. A sleep costs 30 µs or more to leave. Shorter while
  /// yields of this thread prove to give the core to threads that compute (docs/decisions/0003).
  std::uint64_t yield_ns = 1'000'000;
  /// Length of the longest sleep; the first ones are shorter. Bounds the cost of a lost wake-up.
  std::uint64_t block_ns = 1'000'000;
  /// Length of the first sleep. Longer where so many ranks share a core that vain attempts of some
  /// would leave no time for the others.
  std::uint64_t first_block_ns = 20'000;
};

namespace detail {
/// Second part of a wait, after the spins have been used up.
class SlowWait {
 public:
  SlowWait(const WaitPolicy& policy, Waiter& waiter) noexcept : policy_(policy), waiter_(waiter) {}
  /// Yields or sleeps. Returns false when the timeout has passed.
  bool pause() noexcept;
  void reset() noexcept { started_ns_ = 0; }

 private:
  const WaitPolicy& policy_;
  Waiter& waiter_;
  std::uint64_t started_ns_ = 0; ///< start of the wait; 0: not waiting
  std::uint64_t looked_ns_ = 0;
};

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}
} // namespace detail

/// Waits until `attempt()`, which tries to advance, returns kDone: spins, then yields, then blocks;
/// watches the error and the deadline. No other code in whorl may loop on something that another
/// thread or process changes.
template <class Attempt>
WaitResult wait_until(Attempt&& attempt, const WaitPolicy& policy, const CommError& comm_error,
                      Waiter& waiter) {
  detail::SlowWait slow(policy, waiter);
  std::uint32_t spins = 0;
  for (;;) {
    switch (attempt()) {
      case Progress::kDone:
        return WaitResult::kReady;
      case Progress::kFailed:
        return WaitResult::kFailed;
      case Progress::kAdvanced:
        if (comm_error.is_set()) return WaitResult::kFailed;
        spins = 0;
        slow.reset();
        continue;
      case Progress::kIdle:
        break;
    }
    if (comm_error.is_set()) return WaitResult::kFailed;
    if (++spins <= policy.spins) {
      if (spins > kEagerAttempts) detail::cpu_relax();
      continue;
    }
    if (!slow.pause()) return WaitResult::kTimedOut;
  }
}

} // namespace whorl
