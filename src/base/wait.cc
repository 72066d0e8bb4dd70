#include "base/wait.h"

#include <algorithm>

namespace whorl {

void ClockNapper::nap(std::uint64_t max_ns) noexcept {
  sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
}

bool detail::SlowWait::pause() noexcept {
  constexpr std::uint64_t kLookEveryNs = 1'000'000;
  // Where several things cannot be waited for at once, a nap in one is deaf for the others. This
  // part of the wait is what that may add to it.
  constexpr std::uint64_t kNapPart = 16;
  constexpr std::uint64_t kLeastNapNs = 20'000;
  const std::uint64_t now = sys().now_ns();
  if (started_ns_ == 0) started_ns_ = looked_ns_ = now;
  const std::uint64_t waited = now - started_ns_;
  if (waited >= policy_.timeout_ns) return false;
  if (now - looked_ns_ >= kLookEveryNs) {
    looked_ns_ = now;
    napper_.look_around(waited);
  }
  if (waited < policy_.yield_ns) {
    sys().yield();
  } else {
    napper_.nap(
        std::min({policy_.nap_ns, policy_.timeout_ns - waited, waited / kNapPart + kLeastNapNs}));
  }
  return true;
}

} // namespace whorl
