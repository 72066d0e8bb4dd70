#include "topology/json.h"

#include <nlohmann/json.hpp>

#include "base/types.h"
#include "topology/bound.h"
#include "topology/paths.h"
#include "topology/rings.h"

namespace whorl::topology {
namespace {

using Json = nlohmann::ordered_json;

Json bandwidth_json(const Bandwidth& bandwidth) {
  if (!bandwidth.known()) return nullptr;
  return {{"gb_per_s", bandwidth.gb_per_s}, {"origin", name_of(bandwidth.origin)}};
}

Json node_json(const Graph& graph, int node) {
  const Node& it = graph.at(node);
  Json json = {{"id", node}, {"kind", name_of(it.kind)}, {"label", label(graph, node)}};
  if (it.parent >= 0) json["parent"] = it.parent;
  if (it.index >= 0) json["index"] = it.index;
  for (const auto& [name, text] : {std::pair<const char*, const std::string&>{"name", it.name},
                                   {"bus_id", it.bus_id},
                                   {"model", it.model},
                                   {"net_device", it.net_device},
                                   {"guid", it.guid}}) {
    if (!text.empty()) json[name] = text;
  }
  if (!it.cpus.empty()) json["cpus"] = it.cpus.ranges();
  if (it.up.known()) json["up"] = bandwidth_json(it.up);
  if (it.kind == NodeKind::kNic) {
    json["rdma"] = it.rdma;
    json["down"] = it.down;
    if (it.port >= 0) json["port"] = it.port;
  }
  return json;
}

Json rings_json(const Graph& graph, const std::vector<int>& gpus) {
  Json rings = Json::array();
  for (const Ring& ring : find_rings(graph, gpus)) {
    rings.push_back({{"order", ring.order},
                     {"over", name_of(ring.way)},
                     {"copies", ring.copies},
                     {"bandwidth", bandwidth_json(ring.bandwidth)}});
  }
  return rings;
}

Json bounds_json(const Graph& graph, const std::vector<int>& gpus) {
  Json bounds = Json::object();
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    const Bound bound = find_bound(graph, gpus, collective);
    if (bound.bus_gb_per_s > 0) {
      bounds[std::string(name_of(collective))] = {
          {"bus_gb_per_s", bound.bus_gb_per_s}, {"sets", bound.sets}, {"by_table", bound.by_table}};
    }
  }
  return bounds;
}

} // namespace

std::string to_json(const Graph& graph) {
  Json json = {{"source", name_of(graph.source)}, {"notes", graph.notes}};
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    json["nodes"].push_back(node_json(graph, static_cast<int>(i)));
  }
  json["links"] = Json::array();
  for (const Link& link : graph.links) {
    json["links"].push_back({{"a", link.a},
                             {"b", link.b},
                             {"kind", name_of(link.kind)},
                             {"count", link.count},
                             {"bandwidth", bandwidth_json(link.bandwidth)}});
  }
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  std::vector<int> devices = gpus;
  for (const int nic : graph.all(NodeKind::kNic)) devices.push_back(nic);
  json["paths"] = Json::array();
  for (const int a : devices) {
    for (const int b : devices) {
      if (a >= b) continue;
      const Path path = find_path(graph, a, b);
      json["paths"].push_back({{"a", a},
                               {"b", b},
                               {"class", name_of(path)},
                               {"bandwidth", bandwidth_json(path.bandwidth)}});
    }
  }
  json["nearest_nics"] = Json::object();
  for (const int gpu : gpus) json["nearest_nics"][std::to_string(gpu)] = nearest_nics(graph, gpu);
  if (gpus.size() >= 2) {
    json["rings"] = rings_json(graph, gpus);
    json["bounds"] = bounds_json(graph, gpus);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace whorl::topology
