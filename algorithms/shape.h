#pragma once

#include <string>
#include <vector>

namespace whorl {

/// One level of a hierarchy: groups of `size` places, each made of groups of the next lower level.
/// The algorithm is a name of the registry; empty lets the hierarchy choose.
struct Dimension {
  int size = 1;
  std::string algorithm;
  friend bool operator==(const Dimension&, const Dimension&) = default;
};

/// Facts that an algorithm may depend on. Alike on all ranks of a communicator.
struct Shape {
  int nranks = 1;
  int root = 0;     ///< root, where the collective has one
  int channels = 1; ///< number of lanes that the algorithm may use side by side
  /// Ranks in the order of locality: the members of a group of any level follow each other. Place p
  /// is rank order[p]. Empty: 0, 1, 2, …
  std::vector<int> order;
  /// Sizes of groups (hosts, say) of places that follow each other, where `dims` cannot describe
  /// the groups because they are unequal. Empty: the groups are those of `dims`.
  std::vector<int> groups;
  /// Levels, innermost first (place = i0 + size0·(i1 + size1·(i2 + …))); the product of sizes is
  /// nranks. Empty: one dimension.
  std::vector<Dimension> dims;
};

} // namespace whorl
