#pragma once

#include <array>
#include <cstdint>

#include "algorithms/cost_model.h"
#include "algorithms/shape.h"
#include "base/membership.h"
#include "base/status.h"
#include "comm/options.h"
#include "tuning/cost_table.h"
#include "tuning/memory_budget.h"
#include "tuning/selector.h"

namespace whorl {

/// Values that rank 0 decides for all ranks, so that the ranks cannot disagree. Of fixed size; sent
/// byte for byte.
struct Decisions {
  Selector selector; ///< made from `links`
  LinkCosts links;   ///< costs of levels, by a table and the user's file
  std::int32_t channels = 1;
  /// Flag: 1 if links are measured, and algorithms chosen again by the result. No bool, because it
  /// comes from another process.
  std::uint8_t probe = 0;
  std::array<char, 252> dims{}; ///< value of WHORL_DIMS, zero-terminated
  MemorySizes memory;
};

/// Makes rank 0's decisions from its own options, the hosts of the ranks, the costs of links and
/// the memory that endpoints occupy (see fit_budget()).
Result<Decisions> decide(const Membership& members, const Options& options, const CostTable& table,
                         const std::function<std::size_t(int, std::size_t)>& endpoints);

/// A table of algorithms and the costs of links that it was made from.
struct Choice {
  Selector selector;
  LinkCosts links;
};
/// Returns the algorithms that the options choose for the shape, in the form of WHORL_ALGO. A
/// communicator that is made out of another one does without those that do not support the shape.
std::string algorithms_for(const Shape& shape, const Options& options);
/// Chooses algorithms by the costs of links and rank 0's options.
Result<Choice> choose(const Shape& shape, const LinkCosts& links, const Options& options);

/// Returns whether a table of algorithms and costs that came from another rank can be used.
bool sane(const Selector& selector, const LinkCosts& links) noexcept;
/// Checks that decisions received from another rank are consistent.
Status check(const Decisions& decisions, const Membership& members);
/// Returns the shape that the decisions stand for.
Result<Shape> shape_of(const Decisions& decisions, const Membership& members);

} // namespace whorl
