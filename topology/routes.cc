#include "topology/routes.h"

#include <algorithm>

#include "topology/paths.h"

namespace whorl::topology {

Routes::Routes(const Graph& graph, const std::vector<int>& devices)
    : size_(devices.size()), hops_(size_ * size_) {
  // find_path() reads all links for each pair and step; here each link is read once.
  std::map<std::pair<int, int>, Path> direct;
  std::map<int, std::vector<Link>> upwards;
  for (const Link& link : graph.links) {
    join(direct[{link.a, link.b}], link);
    if (graph.common(link.a, link.b) == link.a) upwards[link.b].push_back(link);
  }
  std::vector<Path> to_switch;
  for (const int device : devices) to_switch.push_back(switch_links(graph, device));
  const auto climb = [&](Hop& hop, int node, int top, bool up) {
    while (node != top) {
      const Edge edge = edge_up(graph, upwards[node], node, top);
      pass(hop, up ? node : edge.to, up ? edge.to : node, edge.bandwidth);
      node = edge.to;
    }
  };
  constexpr int kSwitches = -1; // the switches of a machine are one
  for (std::size_t i = 0; i < size_; ++i) {
    for (std::size_t j = 0; j < size_; ++j) {
      if (i == j) continue;
      const int from = devices[i], to = devices[j];
      Hop& hop = hops_[i * size_ + j];
      if (const auto links = direct.find(std::minmax(from, to)); links != direct.end()) {
        hop.over_links = links->second.path_class == PathClass::kLink;
        pass(hop, from, to, links->second.bandwidth);
      } else if (to_switch[i].path_class == PathClass::kLink &&
                 to_switch[j].path_class == PathClass::kLink) {
        hop.over_links = true;
        pass(hop, from, kSwitches, to_switch[i].bandwidth);
        pass(hop, kSwitches, to, to_switch[j].bandwidth);
      } else {
        const int top = graph.common(from, to);
        climb(hop, from, top, true);
        climb(hop, to, top, false);
      }
    }
  }
}

void Routes::pass(Hop& hop, int from, int to, const Bandwidth& bandwidth) {
  if (!bandwidth.known() || bandwidth.gb_per_s <= 0) return;
  const auto [known, added] = numbers_.try_emplace({from, to}, parts_.size());
  if (added) parts_.push_back(bandwidth);
  // A link beside the tree may have the same ends as a step of the tree.
  if (bandwidth.gb_per_s < parts_[known->second].gb_per_s) parts_[known->second] = bandwidth;
  hop.parts.push_back(known->second);
}

} // namespace whorl::topology
