#include "base/wait.h"

#include <algorithm>

namespace whorl {

namespace {

// A yield between ranks that wait for each other ends within tens of microseconds. One that takes
// half a time slice or more gave the core to something that computes, and will again: a thread that
// sleeps instead is put before it when it is woken, one that yields each time behind it. So the
// waits of the next while sleep, and a part of the time that is bounded goes into trying again.
// Each sleep is long, because to look in vain takes the core from the one that computes.
constexpr std::uint64_t kComputingNs = 700'000;
constexpr std::uint64_t kSleepingPart = 8;
constexpr std::uint64_t kCrowdedNapNs = 300'000;

/// What this thread knows about who else wants its core.
thread_local struct {
  std::uint64_t since_ns;
  std::uint64_t for_ns; ///< 0: nothing is known
} crowded;

void yield(std::uint64_t now) noexcept {
  sys().yield();
  const std::uint64_t after = sys().now_ns();
  const std::uint64_t took = after - now;
  if (took >= kComputingNs) crowded = {.since_ns = after, .for_ns = took * kSleepingPart};
}

} // namespace

void ClockNapper::nap(std::uint64_t max_ns) noexcept {
  sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
}

bool detail::SlowWait::pause() noexcept {
  constexpr std::uint64_t kLookEveryNs = 1'000'000;
  // Where several things cannot be waited for at once, a nap in one is deaf for the others. This
  // part of the wait is what that may add to it.
  constexpr std::uint64_t kNapPart = 16;
  const std::uint64_t now = sys().now_ns();
  if (started_ns_ == 0) started_ns_ = looked_ns_ = now;
  const std::uint64_t waited = now - started_ns_;
  if (waited >= policy_.timeout_ns) return false;
  if (now - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = now;
    napper_.look_around(waited);
  }
  const bool is_crowded = now - crowded.since_ns < crowded.for_ns;
  if (waited < policy_.yield_ns && !is_crowded) {
    yield(now);
  } else {
    const std::uint64_t least =
        is_crowded ? std::max(kCrowdedNapNs, policy_.first_nap_ns) : policy_.first_nap_ns;
    napper_.nap(std::min({policy_.nap_ns, policy_.timeout_ns - waited, waited / kNapPart + least}));
  }
  return true;
}

} // namespace whorl
