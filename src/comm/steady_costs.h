#pragma once

#include <array>
#include <cstddef>
#include <mutex>

#include "algorithms/cost_model.h"

namespace whorl {

/// Costs that do not follow noise, so that communicators of one program choose alike. For each kind
/// of communicator, told by its estimates, it keeps the last measurements, and the costs in use
/// until the median of the measurements is farther from them than measurements scatter.
class SteadyCosts {
 public:
  /// Costs up to this factor apart are the same.
  static constexpr double kBand = 1.3;

  /// Adds a measurement and returns the costs to use. Any thread.
  LinkCosts settle(const LinkCosts& estimates, const LinkCosts& measured);

 private:
  static constexpr std::size_t kKinds = 16, kMeasurements = 5;
  struct Kind {
    LinkCosts estimates, used;
    std::array<LinkCosts, kMeasurements> measured; ///< a ring
    std::size_t count = 0;                         ///< of all so far
  };
  std::mutex mutex_;
  std::array<Kind, kKinds> kinds_; ///< a ring
  std::size_t known_ = 0;          ///< of all so far
};

/// Those of this process.
SteadyCosts& steady_costs();

} // namespace whorl
