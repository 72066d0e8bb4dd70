#pragma once

#include <map>

#include "base/status.h"
#include "topology/graph.h"
#include "topology/xml_file.h"

namespace whorl::topology {

/// Reads a matrix of hwloc's, and adds its links to the graph if it has bandwidths of links between
/// devices. `by_gp` has the nodes by hwloc's gp_index; ends that it lacks have been left out of the
/// graph.
Status read_links(const XmlFile& file, pugi::xml_node element, const std::map<long, int>& by_gp,
                  Graph& graph);

} // namespace whorl::topology
