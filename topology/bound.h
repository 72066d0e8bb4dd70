#pragma once

#include <vector>

#include "base/types.h"
#include "topology/graph.h"

namespace whorl::topology {

/// Upper bound of what any algorithm can reach between some devices of a machine.
struct Bound {
  double bus_gb_per_s = 0; ///< bus bandwidth, as perf programs define it; 0: no limit is known
  /// Sets of devices that limit: one set, by what leaves it; or all parts of a division of the
  /// devices, by what leaves them together.
  std::vector<std::vector<int>> sets;
  /// Whether figures of a table limit: then the bound is an estimate, and may be too low.
  bool by_table = false;
};

/// Computes the bound of a collective between `devices`, GPUs for instance, at least two. Links
/// whose bandwidth is unknown count as unlimited.
///
/// With n bytes on each of p ranks, and c(S) GB/s out of a set S of them:
/// - broadcast, reduce: n bytes cross every boundary between the root, which is the first device,
///   and another;
/// - all-gather, reduce-scatter: |S|·n/p bytes leave every S; the tightest S is found by a maximum
///   flow from a source that feeds every rank at the same rate (Zhao et al., ForestColl, 2024);
/// - allreduce: n bytes cross every boundary, and of k sets 2(k−1)n bytes leave all together, here
///   for single ranks and for parts of the machine, unless switches reduce (NVLink SHARP);
/// - gather, scatter: as all-gather with the best device as the only one that receives or sends;
/// - alltoall: |S|·(p−|S|)·n/p bytes leave every S, here for boundaries of the other collectives.
Bound find_bound(const Graph& graph, const std::vector<int>& devices, Collective collective);

} // namespace whorl::topology
