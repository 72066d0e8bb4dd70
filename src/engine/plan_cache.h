#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "algorithms/algorithm.h"
#include "base/membership.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace whorl {

/// Schedule of this rank for one algorithm, with the root that it was built for.
struct Plan {
  Schedule schedule;
  std::uint16_t hash; ///< hash of everything that the schedules of the ranks must have in common
  std::uint8_t algorithm; ///< index in all_algorithms()
};

/// Plans that a communicator has used. Any thread.
class PlanCache {
 public:
  /// Makes an empty cache; `membership` outlives it. With `verify`, each schedule is proved before
  /// its first use.
  PlanCache(const Membership& membership, const Shape& shape, bool verify)
      : membership_(membership), shape_(shape), verify_(verify) {}

  /// Finds a plan, or makes it. `root` counts for collectives that have one. Plans stay at their
  /// addresses as long as the cache lives.
  Result<const Plan*> plan(Collective collective, const Algorithm& algorithm, int root);
  /// Returns the bytes that the plans occupy.
  std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

 private:
  const Membership& membership_;
  Shape shape_;
  bool verify_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Plan>> plans_; ///< guarded by the mutex
  std::atomic<std::size_t> bytes_{0};                              // orders no other data
};

} // namespace whorl
