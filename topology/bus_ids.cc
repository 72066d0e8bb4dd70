#include "topology/bus_ids.h"

#include <fmt/core.h>

namespace whorl::topology {

Status BusIds::add(const XmlFile& file, pugi::xml_node element, Graph& graph, int node) {
  const auto has_links = [&graph](int it) {
    return graph.at(it).kind == NodeKind::kGpu || graph.at(it).kind == NodeKind::kNvSwitch;
  };
  const std::string& bus_id = graph.at(node).bus_id;
  const auto [known, added] = nodes_.emplace(bus_id, node);
  if (added) return {};
  if (has_links(node) && has_links(known->second)) {
    return file.error(element, fmt::format("has the bus id {} of another GPU or switch", bus_id));
  }
  add_note(graph, fmt::format("{}: the bus id {} appears again; both are kept", file.place(element),
                              bus_id));
  if (has_links(node)) known->second = node;
  return {};
}

int BusIds::find(std::string_view bus_id) const {
  const auto found = nodes_.find(bus_id);
  return found == nodes_.end() ? -1 : found->second;
}

} // namespace whorl::topology
