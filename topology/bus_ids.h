#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "topology/graph.h"
#include "topology/xml_file.h"

namespace whorl::topology {

/// Nodes of a machine by their bus ids, while a file is read. Links lead to GPUs and switches of
/// links, so these have one bus id each; a PCI switch of several partitions may appear several
/// times.
class BusIds {
 public:
  /// Adds a node of `graph` that `element` describes. Returns an error if another GPU or switch of
  /// links has its bus id; adds a note if another part has.
  Status add(const XmlFile& file, pugi::xml_node element, Graph& graph, int node);
  /// Returns the node with a bus id, a GPU or switch of links before others; −1: there is none.
  int find(std::string_view bus_id) const;

 private:
  std::map<std::string, int, std::less<>> nodes_;
};

} // namespace whorl::topology
