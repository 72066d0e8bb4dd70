#pragma once

#include "topology/graph.h"
#include "topology/xml_file.h"

namespace whorl::topology {

/// Reads a machine from the XML that NCCL and RCCL write (NCCL_TOPO_DUMP_FILE) and that clouds ship
/// (NCCL_TOPO_FILE): `<system>` with `<cpu>`, `<pci>`, `<gpu>`, `<nvlink>`, `<xgmi>`, `<c2c>`,
/// `<nic>` and `<net>`. The error names the line.
Result<Graph> read_nccl_xml(const XmlFile& file);

/// Writes a graph in that format. What the format cannot say (cores, caches, packages, ports of
/// switches) is left out.
std::string write_nccl_xml(const Graph& graph);

} // namespace whorl::topology
