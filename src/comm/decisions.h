#pragma once

#include <array>
#include <cstdint>

#include "algorithms/cost_model.h"
#include "algorithms/shape.h"
#include "base/membership.h"
#include "base/status.h"
#include "comm/options.h"
#include "tuning/memory_budget.h"
#include "tuning/selector.h"

namespace whorl {

/// What rank 0 decides for all ranks, so that they cannot disagree. Fixed size, sent as it is.
struct Decisions {
  Selector selector; ///< by the constants of the transports
  LinkCosts links;   ///< these constants
  std::int32_t channels = 1;
  bool probe = false;           ///< links are measured, and algorithms chosen once more by that
  std::array<char, 252> dims{}; ///< as in WHORL_DIMS, zero-terminated
  MemorySizes memory;
};

/// Rank 0's decisions, from its own options, the hosts of the ranks, what links cost and what
/// endpoints occupy (see fit_budget()).
Result<Decisions> decide(const Membership& members, const Options& options, const LinkCosts& links,
                         const std::function<std::size_t(int, std::size_t)>& endpoints);

/// The smallest of the budgets that ranks have; 0: none has one.
std::uint64_t smallest_budget(const Membership& members);

/// The algorithms by what links cost, and rank 0's options.
struct Choice {
  Selector selector;
  LinkCosts links;
};
Result<Choice> choose(const Shape& shape, const LinkCosts& links, const Options& options);

/// Whether decisions that came from another rank make sense.
Status check(const Decisions& decisions, const Membership& members);
/// The shape that decisions mean.
Result<Shape> shape_of(const Decisions& decisions, const Membership& members);

} // namespace whorl
