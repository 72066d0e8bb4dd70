#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/shape.h"
#include "base/membership.h"

namespace whorl {

/// Arrangement of ranks in groups, by the places that their PeerInfos state; the same on all ranks.
struct Arrangement {
  /// Ranks such that those of each pod, leaf switch, host, package, NUMA node and cache follow each
  /// other; parts come in the order of their lowest rank, but those near the host's NIC first where
  /// there are several hosts. Empty: 0, 1, 2, …
  std::vector<int> order;
  /// Levels of groups of equal size, innermost first; empty if there is just one level.
  std::vector<Dimension> dims;
  /// Sizes of the groups, which are hosts or the parts of a single host, where sizes differ; then
  /// `dims` is empty.
  std::vector<int> groups;

  /// Returns `order` of so many ranks, written out.
  std::vector<int> ranks(std::size_t count) const;
};

/// Arranges the ranks. Levels that make no groups of several ranks, or just one, are left out, as
/// are those of groups of different sizes above others, and those of switches that are known to let
/// through all that the NICs below them can send. Within a single host the ranks are divided
/// once, by packages if they are on several, else by NUMA nodes, else by caches; parts of a host do
/// not count where there are several hosts, between which messages cost far more.
Arrangement arrange(const std::vector<PeerInfo>& peers);

/// Describes an arrangement for people: "8 ranks on 2 hosts (5 + 3)".
std::string describe(const Arrangement& arrangement, const std::vector<PeerInfo>& peers);

/// Returns a hash of what is known of the topology of a job: which ranks share a host, a cache, a
/// switch, and the rates of NICs and switches. Independent of the names of hosts and of runs.
std::uint64_t topology_digest(const std::vector<PeerInfo>& peers);

} // namespace whorl
