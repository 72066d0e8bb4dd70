#pragma once

#include <string>

#include "base/status.h"
#include "topology/graph.h"

namespace whorl::topology {

/// Reads a machine from an XML file, hwloc's or NCCL's. The error names the file and the line.
Result<Graph> read_xml_file(const std::string& path);
/// Reads a machine from XML text; `name` stands for it in sentences.
Result<Graph> read_xml(std::string text, const std::string& name);

} // namespace whorl::topology
