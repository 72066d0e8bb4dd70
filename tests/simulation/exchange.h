#pragma once

#include <cstddef>
#include <cstdint>

#include "base/comm_error.h"
#include "base/wait.h"
#include "simulation/traffic.h"
#include "simulation/world.h"

namespace whorl::simulation {

/// Returns the limits of a simulated wait: few spins, which are accesses of the run.
inline WaitPolicy wait_policy() noexcept {
  return {.timeout_ns = 10'000'000'000, .spins = 3, .yield_ns = 20'000};
}

/// Waits until `step()` has done everything. A wait that comes to its timeout ends the run.
template <class Step>
WaitResult wait_for(Step&& step, const CommError& error, Waiter& waiter, const char* what) {
  const WaitResult result = wait_until(step, wait_policy(), error, waiter);
  if (result == WaitResult::kTimedOut) world().fail(fmt::format("waits for ever: {}", what));
  return result;
}

/// Runs a sender and a receiver of one rank in turns until both are done.
class Both {
 public:
  Both(Sender& sender, Receiver& receiver) : sender_(sender), receiver_(receiver) {}
  Progress operator()() {
    const bool sends_first = world().random().chance(50);
    if (sends_first && !sent_) step(sender_.step(), sent_);
    if (!received_) step(receiver_.step(), received_);
    if (!sends_first && !sent_) step(sender_.step(), sent_);
    if (sent_ && received_) return Progress::kDone;
    return std::exchange(advanced_, false) ? Progress::kAdvanced : Progress::kIdle;
  }

 private:
  void step(Progress progress, bool& done) {
    done = progress == Progress::kDone;
    advanced_ |= progress != Progress::kIdle;
  }

  Sender& sender_;
  Receiver& receiver_;
  bool sent_ = false, received_ = false, advanced_ = false;
};

} // namespace whorl::simulation
