#pragma once

#include <vector>

#include "base/types.h"
#include "topology/graph.h"

namespace whorl::topology {

/// Upper bound of what any algorithm can reach between some devices of a machine.
struct Bound {
  double bus_gb_per_s = 0; ///< bus bandwidth, as perf programs define it; 0: no limit is known
  /// Devices on one side of the boundary that limits, where it is one boundary; otherwise empty,
  /// and what limits is the sum of what devices can send.
  std::vector<int> side;
};

/// Computes the bound of a collective between `devices`, GPUs for instance, at least two. Links
/// whose bandwidth is unknown count as unlimited, and links that connect no devices are unused.
///
/// With n bytes on each of p ranks, and c(S) GB/s out of a set S of them:
/// - broadcast, reduce: n bytes cross every boundary between the root, the first device, and
/// another;
/// - all-gather, reduce-scatter: |S|·n/p bytes leave every S; the tightest S is found by a maximum
///   flow from a source that feeds every rank at the same rate (Zhao et al., ForestColl, 2024);
/// - allreduce: n bytes cross every boundary, and of k sets 2(k−1)n bytes leave all together, here
///   for single ranks and for parts of the machine;
/// - gather, scatter: as all-gather with the best device as the only one that receives or sends;
/// - alltoall: |S|·(p−|S|)·n/p bytes leave every S, here for boundaries of the other collectives.
Bound find_bound(const Graph& graph, const std::vector<int>& devices, Collective collective);

} // namespace whorl::topology
