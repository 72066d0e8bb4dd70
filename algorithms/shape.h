#pragma once

#include <string>
#include <vector>

namespace whorl {

/// One level of a hierarchy: groups of `size` ranks, each level's groups made of the next lower
/// level's. The algorithm is a name of the registry; empty lets the hierarchy choose.
struct Dimension {
  int size = 1;
  std::string algorithm;
  friend bool operator==(const Dimension&, const Dimension&) = default;
};

/// All that an algorithm may know. Alike on all ranks of a communicator.
struct Shape {
  int nranks = 1;
  int root = 0;     ///< where the collective has one
  int channels = 1; ///< lanes that the algorithm may use side by side
  /// The order in which rings visit the ranks: a permutation that keeps ranks of one host together.
  /// Empty: 0, 1, 2, …
  std::vector<int> ring;
  /// Innermost first (rank = i0 + size0·(i1 + size1·(i2 + …))); the product of sizes is nranks.
  /// Empty: one dimension.
  std::vector<Dimension> dims;
};

} // namespace whorl
