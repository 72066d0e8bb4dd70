#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/paths.h"

namespace whorl::topology {

/// Returns the machine as a tree, one part on a line, with the GB/s of each link upwards; cores
/// that follow each other are one line, and bridges that lead to no device are left out.
std::string to_tree(const Graph& graph);

/// Returns the classes of the paths between GPUs and NICs as a matrix like that of
/// `nvidia-smi topo -m`, with a legend of the classes that occur. Empty if there are none of both.
std::string to_matrix(const Graph& graph);

/// Returns the counts of what a machine has: "2 packages, 8 GPUs, 4 NICs".
std::string to_summary(const Graph& graph);

/// Returns GB/s as text, with a mark for figures of a table: "25.0", "~16.0", "?" if unknown.
std::string to_text(const Bandwidth& bandwidth);

/// Returns "4 NVLinks (100.0 GB/s)" or "no xGMI link" for a path over links.
std::string links_text(const Path& path);

/// Returns "GPU0 GPU1 NIC2 (mlx5_0)".
std::string labels(const Graph& graph, const std::vector<int>& nodes);

} // namespace whorl::topology
