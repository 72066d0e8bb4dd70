#include "base/wait.h"

#include <algorithm>

namespace whorl {

namespace {

// Limits of waits on a core that another thread computes on. A yield between ranks that wait for
// each other ends within tens of microseconds. A yield that takes kComputingNs (half a time slice
// or more) gave the core to a computing thread, as later yields may: the scheduler puts a thread
// that wakes before the computing one, a thread that yields behind it. So for as long as that yield
// took this thread's waits sleep instead. If the first yields after that are as long again, the
// period doubles, up to kSleepingPart times one yield: then a bounded part of the time goes into
// yields. Each sleep is long, because each vain attempt takes the core from the computing thread.
constexpr std::uint64_t kComputingNs = 700'000;
constexpr std::uint64_t kSleepingPart = 8;
constexpr std::uint64_t kCrowdedBlockNs = 300'000;

/// Period in which this thread sleeps instead of yielding, because a computing thread shares its
/// core.
thread_local struct {
  std::uint64_t since_ns;
  std::uint64_t for_ns; ///< length of the period; 0: none yet
} crowded;

void yield(std::uint64_t now) noexcept {
  sys().yield();
  const std::uint64_t after = sys().now_ns();
  const std::uint64_t took = after - now;
  if (took < kComputingNs) return;
  const bool again = now - crowded.since_ns < 2 * crowded.for_ns;
  crowded = {.since_ns = after,
             .for_ns = again ? std::min(2 * crowded.for_ns, kSleepingPart * took) : took};
}

} // namespace

void ClockWaiter::block(std::uint64_t max_ns) noexcept {
  sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
}

bool detail::SlowWait::pause() noexcept {
  constexpr std::uint64_t kLookEveryNs = 1'000'000;
  // A sleep on one of several conditions does not notice the others; 1 / kBlockPart of the time
  // waited so far bounds what the sleep may add to a wait.
  constexpr std::uint64_t kBlockPart = 16;
  const std::uint64_t now = sys().now_ns();
  if (started_ns_ == 0) started_ns_ = looked_ns_ = now;
  const std::uint64_t waited = now - started_ns_;
  if (waited >= policy_.timeout_ns) return false;
  if (now - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = now;
    waiter_.poll_failures(waited);
  }
  const bool is_crowded = now - crowded.since_ns < crowded.for_ns;
  if (waited < policy_.yield_ns && !is_crowded) {
    yield(now);
  } else {
    const std::uint64_t least =
        is_crowded ? std::max(kCrowdedBlockNs, policy_.first_block_ns) : policy_.first_block_ns;
    waiter_.block(
        std::min({policy_.block_ns, policy_.timeout_ns - waited, waited / kBlockPart + least}));
  }
  return true;
}

} // namespace whorl
