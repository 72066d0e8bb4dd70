#include "topology/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/paths.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

/// Least ratio of two bandwidths that are the same but for rounding.
constexpr double kSame = 0.97;

bool differ(const Bandwidth& one, const Bandwidth& other) {
  return one.known() && other.known() &&
         std::min(one.gb_per_s, other.gb_per_s) < kSame * std::max(one.gb_per_s, other.gb_per_s);
}

/// Returns the switch that a device is below, where a switch is one node or has an upstream port;
/// −1: none.
int switch_of(const Graph& graph, int node) {
  while ((node = graph.at(node).parent) >= 0) {
    const BridgeRole role = graph.at(node).role;
    if (role == BridgeRole::kSwitch || role == BridgeRole::kUpstreamPort) return node;
  }
  return -1;
}

/// Comparison of two machines.
class Diff {
 public:
  Diff(const Graph& a, const Graph& b, std::string_view name_a, std::string_view name_b)
      : a_(a), b_(b), name_a_(name_a), name_b_(name_b) {}

  std::vector<std::string> run() {
    compare_processors();
    for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNic}) {
      match(kind);
      for (const int node : only_a_[kind]) missing(a_, node, name_b_, name_a_);
      for (const int node : only_b_[kind]) missing(b_, node, name_a_, name_b_);
    }
    for (const auto& [a, b] : pairs_[NodeKind::kGpu]) compare_gpus(a, b);
    for (const auto& [a, b] : pairs_[NodeKind::kNic]) compare_nics(a, b);
    compare_switches();
    compare_links();
    return std::move(sentences_);
  }

 private:
  using Pairs = std::vector<std::pair<int, int>>; ///< nodes of one machine and of the other

  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    sentences_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  /// Returns the device's name on the first machine, and its bus id.
  std::string name(const Graph& graph, int node) const {
    const std::string& bus_id = graph.at(node).bus_id;
    return bus_id.empty() ? label(graph, node)
                          : fmt::format("{} at {}", label(graph, node), bus_id);
  }

  void missing(const Graph& graph, int node, std::string_view lacks, std::string_view has) {
    const std::string& model = graph.at(node).model;
    const int numa = graph.above(node, NodeKind::kNuma);
    add("{} is missing on {}; {} has it{}{}.", name(graph, node), lacks, has,
        model.empty() ? "" : " (" + model + ")", numa < 0 ? "" : " at " + label(graph, numa));
  }

  /// Finds the counterparts of the devices of a kind.
  void match(NodeKind kind) {
    std::vector<int> a = a_.all(kind), b = b_.all(kind);
    const auto pair_by = [&](const auto& key) {
      std::map<decltype(key(a_, 0)), std::vector<int>> there;
      for (const int node : b) there[key(b_, node)].push_back(node);
      for (auto& [value, nodes] : there) std::reverse(nodes.begin(), nodes.end());
      std::set<int> paired;
      std::erase_if(a, [&](int node) {
        const auto found = there.find(key(a_, node));
        if (found == there.end() || found->second.empty()) return false;
        pairs_[kind].emplace_back(node, found->second.back());
        paired.insert(found->second.back());
        found->second.pop_back();
        return true;
      });
      std::erase_if(b, [&](int node) { return paired.contains(node); });
    };
    const auto numa = [](const Graph& graph, int node) {
      const int at = graph.above(node, NodeKind::kNuma);
      return at < 0 ? -1 : graph.at(at).index;
    };
    const auto text_or = [](const std::string& text, const Graph& graph, int node) {
      // Without the text no two devices have the same key.
      return text.empty() ? fmt::format("{} of {}", node, static_cast<const void*>(&graph)) : text;
    };
    pair_by([&](const Graph& graph, int node) {
      const Node& it = graph.at(node);
      return std::make_tuple(text_or(it.bus_id, graph, node), it.port, it.name);
    });
    pair_by([&](const Graph& graph, int node) {
      const Node& it = graph.at(node);
      return std::make_tuple(text_or(it.bus_id, graph, node), it.port);
    });
    pair_by([&](const Graph& graph, int node) {
      const Node& it = graph.at(node);
      return std::make_tuple(text_or(it.name, graph, node), it.port);
    });
    const auto of_model = [](const Graph& graph, int node) {
      const int card = graph.above(node, NodeKind::kCard);
      const Node& it = graph.at(card < 0 ? node : card);
      return std::make_tuple(it.vendor, it.device, it.pci_class, it.model, it.gpu_arch);
    };
    pair_by([&](const Graph& graph, int node) {
      return std::make_pair(of_model(graph, node), numa(graph, node));
    });
    pair_by(of_model);
    std::sort(pairs_[kind].begin(), pairs_[kind].end(), [this](const auto& one, const auto& other) {
      return a_.at(one.first).index < a_.at(other.first).index;
    });
    only_a_[kind] = std::move(a);
    only_b_[kind] = std::move(b);
  }

  /// Adds a sentence if two texts differ and neither is empty.
  void compare_text(std::string_view what, std::string_view a, std::string_view b) {
    if (a != b && !a.empty() && !b.empty()) {
      add("{} is {} on {} and {} on {}.", what, a, name_a_, b, name_b_);
    }
  }

  /// Adds a sentence if two counts differ and neither is 0.
  void compare_count(std::string_view what, std::size_t a, std::size_t b) {
    if (a != b && a != 0 && b != 0) {
      add("The number of {} is {} on {} and {} on {}.", what, a, name_a_, b, name_b_);
    }
  }

  void compare_processors() {
    for (const auto& [kind, words] : {std::pair{NodeKind::kPackage, "packages"},
                                      {NodeKind::kNuma, "NUMA nodes"},
                                      {NodeKind::kCache, "last-level caches"},
                                      {NodeKind::kCore, "cores"}}) {
      compare_count(words, a_.all(kind).size(), b_.all(kind).size());
    }
    compare_count("CPUs", a_.nodes.front().cpus.count(), b_.nodes.front().cpus.count());
    const auto by_index = [](const Graph& graph, NodeKind kind) {
      std::map<int, int> nodes;
      for (const int node : graph.all(kind)) nodes[graph.at(node).index] = node;
      return nodes;
    };
    const bool shown = !a_.nodes.front().cpus.empty() && !b_.nodes.front().cpus.empty();
    for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma}) {
      const auto there = by_index(b_, kind);
      for (const auto& [index, node] : by_index(a_, kind)) {
        const auto other = there.find(index);
        if (other == there.end()) continue;
        const Node& one = a_.at(node);
        const Node& two = b_.at(other->second);
        compare_text("The processor of " + label(a_, node), one.model, two.model);
        if (kind == NodeKind::kNuma && shown && one.cpus.count() != two.cpus.count()) {
          add("{} has {} CPUs on {} and {} on {}.", label(a_, node), one.cpus.count(), name_a_,
              two.cpus.count(), name_b_);
        }
      }
    }
  }

  /// Compares the PCI links of two devices, or of two switches, which `what` names.
  void compare_pci(const std::string& what, const Bandwidth& a, const Bandwidth& b, bool idles) {
    if (!differ(a, b)) return;
    add("The PCI link of {} has {} GB/s on {} and {} GB/s on {}: other lanes or another "
        "generation.{}",
        what, to_text(a), name_a_, to_text(b), name_b_,
        idles ? " A GPU lowers the speed of an idle link, so look again while it works." : "");
  }

  void compare_numa(int a, int b) {
    if (a_.all(NodeKind::kNuma).empty() || b_.all(NodeKind::kNuma).empty()) return;
    const auto place = [](const Graph& graph, int node) {
      const int numa = graph.above(node, NodeKind::kNuma);
      return numa < 0 ? std::string("no NUMA node") : label(graph, numa);
    };
    const std::string one = place(a_, a), two = place(b_, b);
    if (one == two) return;
    add("{} is at {} on {} and at {} on {}.", name(a_, a), one, name_a_, two, name_b_);
  }

  void compare_gpus(int a, int b) {
    const Node& one = a_.at(a);
    const Node& two = b_.at(b);
    if (one.model.empty() || two.model.empty()) {
      const auto ids = [](const Node& it) {
        return it.device == 0 ? "" : fmt::format("{:04x}:{:04x}", it.vendor, it.device);
      };
      compare_text("The PCI id of " + name(a_, a), ids(one), ids(two));
    } else {
      compare_text("The model of " + name(a_, a), one.model, two.model);
    }
    compare_pci(name(a_, a), one.up, two.up, true);
    compare_numa(a, b);
    if (one.hidden_links != two.hidden_links) {
      add("{} has {} links whose other end is hidden on {} and {} on {}.", name(a_, a),
          one.hidden_links, name_a_, two.hidden_links, name_b_);
    }
  }

  void compare_nics(int a, int b) {
    const Node& one = a_.at(a);
    const Node& two = b_.at(b);
    const auto state = [](const Node& it) { return it.down ? "down" : "up"; };
    compare_text("The port of " + name(a_, a), state(one), state(two));
    if (differ(one.up, two.up)) {
      add("The rate of {} is {} GB/s on {} and {} GB/s on {}.", name(a_, a), to_text(one.up),
          name_a_, to_text(two.up), name_b_);
    }
    if (one.rdma != two.rdma) {
      add("{} does RDMA on {} and does not on {}: look at the driver.", name(a_, a),
          one.rdma ? name_a_ : name_b_, one.rdma ? name_b_ : name_a_);
    }
    const int card_a = a_.above(a, NodeKind::kCard), card_b = b_.above(b, NodeKind::kCard);
    if (card_a >= 0 && card_b >= 0) {
      compare_pci(name(a_, a), a_.at(card_a).up, b_.at(card_b).up, false);
    }
    compare_numa(a, b);
  }

  /// Compares which devices share a switch. A switch's counterpart is that of its first GPU, or its
  /// first device.
  void compare_switches() {
    std::map<int, std::pair<int, int>> counterparts; // switch → first device, other switch
    for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNic}) {
      for (const auto& [a, b] : pairs_[kind]) {
        const int at_a = switch_of(a_, a), at_b = switch_of(b_, b);
        const auto [known, added] = counterparts.try_emplace(at_a, a, at_b);
        if (added && at_a >= 0 && at_b >= 0) {
          compare_pci(fmt::format("the switch above {} upwards", label(a_, a)), a_.at(at_a).up,
                      b_.at(at_b).up, false);
        }
        const auto [first, other] = known->second;
        // Devices below no switch are not together.
        if (at_a < 0 ? at_b < 0 : at_b == other) continue;
        const auto place = [&](const Graph& graph, int at) {
          return at < 0 ? std::string("no switch") : label(graph, at);
        };
        add("{} is below {} on {}{}, and below {} on {}.", name(a_, a), place(a_, at_a), name_a_,
            at_a < 0 ? "" : fmt::format(", with {}", label(a_, first)), place(b_, at_b), name_b_);
      }
    }
  }

  void compare_links() {
    const Pairs& gpus = pairs_[NodeKind::kGpu];
    if (a_.links.empty() != b_.links.empty() && gpus.size() > 1) {
      const bool here = !a_.links.empty();
      add("{} has links beside PCI ({}), and {} shows none: look at its driver and fabric manager, "
          "or at what the source leaves out.",
          here ? name_a_ : name_b_, name_of(here ? a_.links.front().kind : b_.links.front().kind),
          here ? name_b_ : name_a_);
      return;
    }
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const auto& [a, b] = gpus[i];
      compare_links(fmt::format("{} and NVSwitches", label(a_, a)), switch_links(a_, a),
                    switch_links(b_, b));
      for (std::size_t j = i + 1; j < gpus.size(); ++j) {
        compare_links(fmt::format("{} and {}", label(a_, a), label(a_, gpus[j].first)),
                      direct_links(a_, a, gpus[j].first), direct_links(b_, b, gpus[j].second));
      }
    }
  }

  void compare_links(const std::string& between, Path a, Path b) {
    if (a.path_class == PathClass::kSys) a.kind = b.kind;
    if (b.path_class == PathClass::kSys) b.kind = a.kind;
    const bool same_number = a.links == b.links || a.links == 0 || b.links == 0;
    if (a.path_class == b.path_class && a.kind == b.kind && same_number &&
        !differ(a.bandwidth, b.bandwidth)) {
      return;
    }
    add("Between {} there are {} on {} and {} on {}.", between, links_text(a), name_a_,
        links_text(b), name_b_);
  }

  const Graph& a_;
  const Graph& b_;
  std::string_view name_a_, name_b_;
  std::map<NodeKind, Pairs> pairs_;
  std::map<NodeKind, std::vector<int>> only_a_, only_b_;
  std::vector<std::string> sentences_;
};

} // namespace

std::vector<std::string> diff(const Graph& a, const Graph& b, std::string_view name_a,
                              std::string_view name_b) {
  return Diff(a, b, name_a, name_b).run();
}

} // namespace whorl::topology
