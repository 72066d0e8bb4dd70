#pragma once

#include "topology/graph.h"
#include "topology/nvlink.h"

namespace whorl::topology {

/// Adds the NVLinks that NVML has found to a graph of the same machine, and numbers its GPUs as
/// NVML does. GPUs and switches that the graph lacks, as in virtual machines that hide their PCI
/// tree, become parts of the machine. A graph that has NVLinks already keeps them.
void add_gpu_links(Graph& graph, const gpu::DeviceLinks& devices);

} // namespace whorl::topology
