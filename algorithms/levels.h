#pragma once

#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"

namespace whorl {

/// Level with more than one rank.
struct Level {
  const Dimension* dimension;
  int size;
  int distance; ///< distance between neighbours in this level
  /// Returns the number of a rank within its group.
  int of(int rank) const { return rank / distance % size; }
  /// Returns the ranks that differ from `rank` in this level only.
  std::vector<int> group(int rank) const;
  /// Returns the shape of a group, whose root is in line with `root`.
  Shape shape(int root) const { return {.nranks = size, .root = of(root)}; }
};

/// Returns the levels of a shape, which has to outlive them, innermost first.
std::vector<Level> levels_of(const Shape& shape);

/// Returns the algorithm that `name` stands for in a level of `size` ranks; null if there is none.
/// Empty: one that suits the size.
const Algorithm* algorithm_of(std::string_view name, int size, Collective collective);
inline const Algorithm* algorithm_of(const Level& level, Collective collective) {
  return algorithm_of(level.dimension->algorithm, level.size, collective);
}

/// Collective of one level. The phases of an allreduce are in the order reduce-scatters, allreduce,
/// all-gathers.
struct Phase {
  const Level* level;
  Collective collective;
};

/// Returns the phases of a collective in their order.
std::vector<Phase> phases_of(const std::vector<Level>& levels, Collective collective);

/// Returns the schedule of a rank in a phase of a collective without a root.
Schedule part_of(const Phase& phase, int rank);

} // namespace whorl
