#pragma once

#include <cstdint>

#include "base/system.h"
#include "base/verdict.h"

namespace whorl {

/// What one attempt at something came to.
enum class Progress : std::uint8_t {
  kIdle,     ///< nothing could be done
  kAdvanced, ///< something was done, more remains
  kDone,     ///< complete
  kFailed,   ///< the error is in the Verdict
};

/// How to block once spinning and yielding have not helped.
class Napper {
 public:
  virtual ~Napper() = default;
  /// Blocks until something may have changed, at most `max_ns`. May return early for no reason.
  virtual void nap(std::uint64_t max_ns) noexcept = 0;
  /// Called about once a millisecond while waiting. Looks for dead peers and for verdicts of other
  /// ranks, and raises the communicator's Verdict where it finds one. `waited_ns` is the time
  /// without progress.
  virtual void look_around(std::uint64_t waited_ns) noexcept { static_cast<void>(waited_ns); }
};

/// Sleeps by the clock; for waits in which nobody rings.
class ClockNapper final : public Napper {
 public:
  void nap(std::uint64_t max_ns) noexcept override;
};

enum class WaitResult : std::uint8_t {
  kReady,    ///< the attempt said kDone
  kFailed,   ///< the attempt said kFailed, or the verdict was raised
  kTimedOut, ///< no progress for the whole timeout
};

/// Attempts of a wait that are not followed by a pause: what is waited for comes within a hundred
/// nanoseconds as a rule; a pause takes 20 to 40.
inline constexpr std::uint32_t kEagerAttempts = 8;

/// How one wait behaves.
struct WaitPolicy {
  std::uint64_t timeout_ns; ///< without progress; every kAdvanced starts it anew
  /// Attempts before the first yield. More: a wait that ends soon costs no system call. Fewer: the
  /// core is free sooner for the rank that is waited for, where the two share one. Two ranks on one
  /// core, 8 bytes: 4 µs with 20, 8.5 with 100, 19 with 300, 104 with 2000; on two cores 0.55 to
  /// 0.65 µs with any of them (docs/decisions/0003).
  std::uint32_t spins = 20;
  /// How long to yield before the first nap. A nap costs 30 µs or more to leave. Shorter while
  /// yields of this thread prove to give the core to threads that compute (docs/decisions/0003).
  std::uint64_t yield_ns = 1'000'000;
  /// The longest nap; the first ones are shorter. Bounds the cost of a wake-up that was lost.
  std::uint64_t nap_ns = 1'000'000;
  /// The first nap. Longer where so many ranks share a core that those which look in vain would
  /// leave no time for the others.
  std::uint64_t first_nap_ns = 20'000;
};

namespace detail {
/// The part of a wait after the spins have been used up. `first` is true once per idle period.
class SlowWait {
 public:
  SlowWait(const WaitPolicy& policy, Napper& napper) noexcept : policy_(policy), napper_(napper) {}
  /// Yields or naps. Returns false when the timeout has passed.
  bool pause() noexcept;
  void reset() noexcept { started_ns_ = 0; }

 private:
  const WaitPolicy& policy_;
  Napper& napper_;
  std::uint64_t started_ns_ = 0; ///< 0: not waiting
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

/// The one primitive for waiting: spin, then yield, then block; watches the verdict and the
/// deadline. `attempt()` tries to advance and returns a Progress. Nothing else in whorl may loop on
/// something that another thread or process changes.
template <class Attempt>
WaitResult wait_until(Attempt&& attempt, const WaitPolicy& policy, const Verdict& verdict,
                      Napper& napper) {
  detail::SlowWait slow(policy, napper);
  std::uint32_t spins = 0;
  for (;;) {
    switch (attempt()) {
      case Progress::kDone:
        return WaitResult::kReady;
      case Progress::kFailed:
        return WaitResult::kFailed;
      case Progress::kAdvanced:
        if (verdict.raised()) return WaitResult::kFailed;
        spins = 0;
        slow.reset();
        continue;
      case Progress::kIdle:
        break;
    }
    if (verdict.raised()) return WaitResult::kFailed;
    if (++spins <= policy.spins) {
      if (spins > kEagerAttempts) detail::cpu_relax();
      continue;
    }
    if (!slow.pause()) return WaitResult::kTimedOut;
  }
}

} // namespace whorl
