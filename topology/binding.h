#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Processors and devices that one rank of a host should have.
struct Binding {
  CpuSet cpus;           ///< processors; empty if the graph shows none
  int cores = 0;         ///< number of cores, also of those that the rank shares
  bool shared = false;   ///< whether another rank has one of the cores, too
  int part = 0;          ///< smallest part of the machine that contains the processors
  int gpu = -1;          ///< node of the rank's GPU; −1: none
  std::vector<int> nics; ///< nodes of the rank's NICs
};

/// Gives each of `ranks` (at least one) ranks its processors and devices. All ranks have as many
/// cores, and different ones where there are enough. A rank's cores are in one package, NUMA node
/// and cache, if that costs no more than a third of them. Rank i has GPU i, if there are that many,
/// and cores near this GPU; the NICs nearest to GPU or cores are shared out among the ranks.
///
/// If the source shows no cores, the CPUs of each NUMA node stand for these; runs of CPUs of the
/// same length are taken for the hyperthreads of the same cores, as Linux numbers them.
std::vector<Binding> bind_ranks(const Graph& graph, int ranks);

/// Returns sentences about what is wrong with the best that there is: ranks that share cores, are
/// far from their GPU, or have a NIC without a link; and about cores that are left over.
std::vector<std::string> binding_notes(const Graph& graph, const std::vector<Binding>& bindings);

} // namespace whorl::topology
