#pragma once

#include <gtest/gtest.h>

#include "base/wait.h"

namespace whorl::test {

/// Waits until `condition()` is true, at most 20 s, after which the test fails but goes on.
template <class Condition>
void until(const Condition& condition) {
  const CommError never_set;
  ClockWaiter waiter;
  const auto attempt = [&] { return condition() ? Progress::kDone : Progress::kIdle; };
  EXPECT_EQ(wait_until(attempt, {.timeout_ns = 20'000'000'000}, never_set, waiter),
            WaitResult::kReady);
}

} // namespace whorl::test
