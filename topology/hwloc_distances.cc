#include "topology/hwloc_distances.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whorl::topology {
namespace {

/// Bandwidth by which sources name links between devices.
struct LinkName {
  std::string_view distances;
  LinkKind kind;
};
constexpr LinkName kLinkNames[] = {{"NVLinkBandwidth", LinkKind::kNvLink},
                                   {"XGMIBandwidth", LinkKind::kXgmi},
                                   {"XeLinkBandwidth", LinkKind::kXeLink}};

/// Returns the MB/s that one of the links may have, most likely first.
std::vector<int> link_speeds(const Graph& graph, const Link& link) {
  if (link.kind == LinkKind::kXgmi) return {50'000, 64'000, 76'800}; // MI200, MI300, MI350
  if (link.kind != LinkKind::kNvLink) return {};
  constexpr std::uint32_t kFirstBlackwell = 0x2900;
  if (std::max(graph.at(link.a).device, graph.at(link.b).device) >= kFirstBlackwell) {
    return {50'000};
  }
  return {25'000, 20'000}; // from version 2 on, and of version 1
}

/// Adds links of a matrix in MB/s; ends that were left out have node −1.
void add_links(const std::vector<int>& nodes, const std::vector<double>& mb_per_s, LinkKind kind,
               Graph& graph) {
  std::map<std::pair<int, int>, double> sums;
  const std::size_t count = nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      // The slower direction, where they differ.
      const double value = std::min(mb_per_s[i * count + j], mb_per_s[j * count + i]);
      if (nodes[i] < 0 || nodes[j] < 0 || nodes[i] == nodes[j] || value <= 0) continue;
      sums[std::minmax(nodes[i], nodes[j])] += value;
    }
  }
  for (const auto& [ends, value] : sums) {
    Link link{.a = ends.first,
              .b = ends.second,
              .kind = kind,
              .bandwidth = reported_bandwidth(value / 1000)};
    if (!link.bandwidth.known()) continue;
    for (const int each : link_speeds(graph, link)) {
      if (link.count == 0 && std::fmod(value, each) == 0) {
        link.count = static_cast<int>(value / each);
      }
    }
    graph.links.push_back(link);
  }
}

} // namespace

Status read_links(const XmlFile& file, pugi::xml_node element, const std::map<long, int>& by_gp,
                  Graph& graph) {
  const std::string_view name = element.attribute("name").value();
  const auto* const known = std::find_if(std::begin(kLinkNames), std::end(kLinkNames),
                                         [&](const LinkName& it) { return it.distances == name; });
  if (known == std::end(kLinkNames)) return {};
  const auto size = file.number(element, "nbobjs", 1, 4096);
  if (!size.ok()) return size.status();
  const auto count = static_cast<std::size_t>(size->value_or(1));
  std::vector<int> nodes;
  for (const pugi::xml_node words : element.children("indexes")) {
    std::istringstream text(words.child_value());
    for (std::string word; text >> word;) {
      const auto node = by_gp.find(std::atol(word.substr(word.find(':') + 1).c_str()));
      nodes.push_back(node == by_gp.end() ? -1 : node->second);
    }
  }
  std::vector<double> values;
  for (const pugi::xml_node words : element.children("u64values")) {
    std::istringstream text(words.child_value());
    for (long long value = 0; text >> value;) values.push_back(static_cast<double>(value));
  }
  if (nodes.size() != count || values.size() != count * count) {
    return file.error(element, fmt::format("has {} indexes and {} values for nbobjs=\"{}\"",
                                           nodes.size(), values.size(), count));
  }
  add_links(nodes, values, known->kind, graph);
  return {};
}

} // namespace whorl::topology
