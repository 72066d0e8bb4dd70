#include "topology/bound.h"

#include <algorithm>
#include <map>
#include <utility>

#include "topology/flow.h"

namespace whorl::topology {
namespace {

constexpr double kUnlimited = FlowNetwork::kUnlimited;

/// Set of devices: for each of them, by its place, whether the set has it.
using Set = std::vector<bool>;

/// Capacities between the devices of a machine.
class Capacities {
 public:
  /// Takes figures of tables as unknown unless `tables`.
  Capacities(const Graph& graph, const std::vector<int>& devices, bool tables) : tables_(tables) {
    const std::vector<int> switches = graph.all(NodeKind::kNvSwitch);
    add_nodes(graph, devices, switches);
    for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
      const Node& it = graph.nodes[node];
      if (it.parent >= 0 && places_[node] != kNone)
        connect(static_cast<int>(node), it.parent, it.up);
    }
    for (const Link& link : graph.links) connect(link.a, link.b, link.bandwidth);
    // Switches of a machine are one (see find_path()).
    for (const int it : switches) connect(it, switches.front(), {});
    source_ = network_.add_node();
    sink_ = network_.add_node();
    for (const int device : devices) {
      devices_.push_back(place(device));
      from_source_.push_back(network_.add_edge(source_, devices_.back(), 0));
      to_sink_.push_back(network_.add_edge(devices_.back(), sink_, 0));
    }
  }

  std::size_t size() const noexcept { return devices_.size(); }

  /// Returns the GB/s that leave a set of devices, given for each device whether it is in the set.
  double out_of(const Set& inside) {
    for (std::size_t i = 0; i < size(); ++i) {
      network_.set_capacity(from_source_[i], inside[i] ? kUnlimited : 0);
      network_.set_capacity(to_sink_[i], inside[i] ? 0 : kUnlimited);
    }
    return network_.max_flow(source_, sink_);
  }

  /// Returns the GB/s between two devices, and which devices are on the first one's side of the
  /// tightest boundary.
  double between(std::size_t from, std::size_t to, Set& side) {
    for (std::size_t i = 0; i < size(); ++i) {
      network_.set_capacity(from_source_[i], i == from ? kUnlimited : 0);
      network_.set_capacity(to_sink_[i], i == to ? kUnlimited : 0);
    }
    const double flow = network_.max_flow(source_, sink_);
    read_side(side);
    return flow;
  }

  /// Returns the greatest rate in GB/s that all devices can send to one at the same time, itself
  /// included, and the devices on the source's side of what limits the rate. Lowers the rate to
  /// what the tightest boundary permits until none is too tight (Newton's method).
  double feed(std::size_t to, Set& side) {
    const auto set_rate = [&](double rate) {
      for (std::size_t i = 0; i < size(); ++i) {
        network_.set_capacity(from_source_[i], rate);
        network_.set_capacity(to_sink_[i], i == to ? kUnlimited : 0);
      }
      return network_.max_flow(source_, sink_);
    };
    side.assign(size(), true);
    side[to] = false;
    double rate = limited_ + 1; // more than any limited link permits
    if (const double most = out_of(side); most != kUnlimited) rate = share(most, side);
    constexpr int kMostSteps = 100; // rarely more than five
    for (int i = 0; i < kMostSteps; ++i) {
      if (set_rate(rate) >= rate * static_cast<double>(size()) * (1 - 1e-9)) break;
      Set tighter;
      read_side(tighter);
      const double lower = share(out_of(tighter), tighter);
      if (!(lower < rate)) break; // but for rounding, no boundary is tighter
      rate = lower;
      side = std::move(tighter);
    }
    return rate > limited_ ? kUnlimited : rate;
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  /// Adds those nodes of the graph that a path between devices may pass.
  void add_nodes(const Graph& graph, const std::vector<int>& devices,
                 const std::vector<int>& switches) {
    places_.assign(graph.nodes.size(), kNone);
    const auto use = [this](int node) { places_[static_cast<std::size_t>(node)] = 0; };
    for (const int device : devices) use(device);
    for (const int it : switches) use(it);
    for (const Link& link : graph.links) use(link.a), use(link.b);
    for (std::size_t node = places_.size(); node-- > 0;) {
      if (places_[node] == kNone) continue;
      places_[node] = network_.add_node();
      if (graph.nodes[node].parent >= 0) use(graph.nodes[node].parent);
    }
  }
  /// Returns the place of a node of the graph in the network.
  std::size_t place(int node) const { return places_[static_cast<std::size_t>(node)]; }

  void connect(int a, int b, const Bandwidth& bandwidth) {
    if (a == b) return;
    const bool counts = bandwidth.origin == Origin::kTable ? tables_ : bandwidth.known();
    const double capacity = counts ? bandwidth.gb_per_s : kUnlimited;
    network_.add_edge(place(a), place(b), capacity);
    network_.add_edge(place(b), place(a), capacity);
    if (counts) limited_ += 2 * capacity;
  }
  /// Returns the share that each device of a set has of what leaves the set.
  static double share(double gb_per_s, const Set& set) {
    return gb_per_s / static_cast<double>(std::count(set.begin(), set.end(), true));
  }
  void read_side(Set& side) const {
    const std::vector<bool> reached = network_.source_side(source_);
    side.resize(size());
    for (std::size_t i = 0; i < size(); ++i) {
      side[i] = reached[devices_[i]];
    }
  }

  bool tables_;
  FlowNetwork network_{0};
  std::vector<std::size_t> places_;  ///< place of each node of the graph; kNone: not in the network
  std::vector<std::size_t> devices_; ///< places of the devices
  double limited_ = 0;               ///< GB/s of all links whose capacity counts
  std::size_t source_ = 0, sink_ = 0;
  std::vector<std::size_t> from_source_, to_sink_; ///< edges of each device
};

/// Bound so far, and the sets that it comes from.
struct Tightest {
  double bus = kUnlimited;
  std::vector<Set> sets;

  void tighten(double bandwidth, const std::vector<Set>& limits) {
    // Sums of capacities differ in their last digits: of equal bounds the first stays.
    if (bandwidth >= bus * (1 - 1e-6)) return;
    bus = bandwidth;
    sets = limits;
  }
};

/// Returns the parts of the machine into which the devices fall, for each kind of part.
std::vector<std::vector<Set>> parts_of(const Graph& graph, const std::vector<int>& devices) {
  std::vector<std::vector<Set>> all;
  const auto add = [&](auto&& part_of) {
    std::map<int, Set> parts;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      Set& part = parts[part_of(devices[i], static_cast<int>(i))];
      part.resize(devices.size());
      part[i] = true;
    }
    if (parts.size() < 2) return;
    all.emplace_back();
    for (auto& [where, part] : parts) all.back().push_back(std::move(part));
  };
  add([](int, int i) { return i; }); // single devices
  add([&](int device, int) { return graph.at(device).parent; });
  for (const NodeKind kind : {NodeKind::kHostBridge, NodeKind::kNuma, NodeKind::kPackage}) {
    add([&](int device, int) { return graph.above(device, kind); });
  }
  return all;
}

void bound_all_reduce(Capacities& capacities, const std::vector<std::vector<Set>>& parts,
                      Tightest& tightest) {
  const auto p = static_cast<double>(capacities.size());
  for (const auto& partition : parts) {
    double sum = 0;
    for (const auto& part : partition) sum += capacities.out_of(part);
    const auto k = static_cast<double>(partition.size());
    tightest.tighten(sum / (k - 1) * (p - 1) / p, partition);
  }
  Set side;
  for (std::size_t to = 1; to < capacities.size(); ++to) {
    const double flow = capacities.between(0, to, side);
    tightest.tighten(flow * 2 * (p - 1) / p, {side});
  }
}

/// Calls `visit(flow, side)` for the cuts of a Gomory-Hu tree, among which is a tightest one of
/// every pair of devices (Gusfield, 1990).
template <class Visit>
void for_each_cut(Capacities& capacities, Visit visit) {
  Set side;
  std::vector<std::size_t> parent(capacities.size());
  for (std::size_t from = 1; from < capacities.size(); ++from) {
    const std::size_t to = parent[from];
    const double flow = capacities.between(from, to, side);
    visit(flow, side);
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      if (i != from && side[i] && parent[i] == to) parent[i] = from;
    }
    if (side[parent[to]]) parent[from] = std::exchange(parent[to], from);
  }
}

void bound_all_to_all(Capacities& capacities, const std::vector<std::vector<Set>>& parts,
                      Tightest& tightest) {
  const auto p = static_cast<double>(capacities.size());
  const auto consider = [&](const Set& side) {
    const auto size = static_cast<double>(std::count(side.begin(), side.end(), true));
    if (size == 0 || size == p) return;
    tightest.tighten(capacities.out_of(side) * (p - 1) / (size * (p - size)), {side});
  };
  for (const auto& partition : parts) {
    for (const auto& part : partition) consider(part);
  }
  for_each_cut(capacities, [&](double /*flow*/, const Set& side) { consider(side); });
}

/// Returns the bound by all figures, or without those of tables.
Tightest tightest_of(const Graph& graph, const std::vector<int>& devices, Collective collective,
                     bool tables) {
  Capacities capacities(graph, devices, tables);
  const auto parts = parts_of(graph, devices);
  const std::size_t count = devices.size();
  const auto p = static_cast<double>(count);
  Tightest tightest, best{.bus = 0};
  Set side;
  // Of several roots or pairs the best counts.
  const auto loosen = [&](double bus) {
    if (bus > best.bus) best = {.bus = bus, .sets = {side}};
  };
  switch (collective) {
    case Collective::kAllReduce:
      bound_all_reduce(capacities, parts, tightest);
      return tightest;
    case Collective::kAllToAll:
      bound_all_to_all(capacities, parts, tightest);
      return tightest;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      for (std::size_t to = 0; to < count; ++to) {
        const double rate = capacities.feed(to, side);
        tightest.tighten(rate * (p - 1), {side});
      }
      return tightest;
    case Collective::kGather:
    case Collective::kScatter:
      for (std::size_t to = 0; to < count; ++to) loosen(capacities.feed(to, side) * (p - 1));
      return best;
    case Collective::kBroadcast:
    case Collective::kReduce:
      for (std::size_t to = 1; to < count; ++to) {
        const double flow = capacities.between(0, to, side);
        tightest.tighten(flow, {side});
      }
      return tightest;
    case Collective::kSend:
    case Collective::kRecv:
      for_each_cut(capacities, [&](double flow, const Set& cut) {
        side = cut;
        loosen(flow);
      });
      return best;
    case Collective::kBarrier:
      break;
  }
  return tightest;
}

} // namespace

Bound find_bound(const Graph& graph, const std::vector<int>& devices, Collective collective) {
  const Tightest tightest = tightest_of(graph, devices, collective, true);
  if (tightest.bus == kUnlimited) return {};
  Bound bound{.bus_gb_per_s = tightest.bus};
  for (const Set& set : tightest.sets) {
    bound.sets.emplace_back();
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (set[i]) bound.sets.back().push_back(devices[i]);
    }
  }
  const double without = tightest_of(graph, devices, collective, false).bus;
  bound.by_table = without > tightest.bus * (1 + 1e-6);
  return bound;
}

} // namespace whorl::topology
