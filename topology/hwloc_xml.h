#pragma once

#include "topology/graph.h"
#include "topology/xml_file.h"

namespace whorl::topology {

/// Reads a machine from hwloc's XML (`lstopo machine.xml`) of versions 2 and 3, with the distances
/// NVLinkBandwidth, XGMIBandwidth and XeLinkBandwidth. The error names the line.
Result<Graph> read_hwloc_xml(const XmlFile& file);

/// Writes a graph in that format, with distances for links between devices whose bandwidth is
/// known.
std::string write_hwloc_xml(const Graph& graph);

} // namespace whorl::topology
