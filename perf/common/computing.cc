#include "perf/common/computing.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace perf {
namespace {

/// Multiplies in a chain, which does not depend on memory.
void work(long rounds) {
  static thread_local volatile std::uint64_t result;
  std::uint64_t value = result | 1;
  for (long i = 0; i < rounds; ++i) value = value * 6364136223846793005 + 1442695040888963407;
  result = value;
}

} // namespace

Computing::Computing(double us) {
  if (us <= 0) return;
  constexpr long kTrial = 20'000;
  constexpr int kTrials = 50; // of which the fastest was not interrupted
  double fastest_us = 1e9;
  for (int i = 0; i < kTrials; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work(kTrial);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    fastest_us = std::min(fastest_us, took.count());
  }
  rounds_ = static_cast<long>(us * kTrial / std::max(fastest_us, 1e-3));
}

void Computing::run() const { work(rounds_); }

} // namespace perf
