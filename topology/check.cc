#include "topology/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/devices.h"
#include "topology/paths.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

/// Least ratio of two bandwidths that are the same but for rounding.
constexpr double kSame = 0.97;

bool slower(const Bandwidth& one, const Bandwidth& other) {
  return one.known() && other.known() && one.gb_per_s < kSame * other.gb_per_s;
}

/// Returns whether one GPU has fewer links than another, by their numbers where these are known.
bool fewer(const Path& one, const Path& other) {
  const bool counted = other.links > 0 && (one.links > 0 || !one.bandwidth.known());
  return counted ? one.links < other.links
                 : one.bandwidth.gb_per_s < kSame * other.bandwidth.gb_per_s;
}

/// Search for the faults of one machine.
class Checker {
 public:
  Checker(const Graph& graph, const PciStates& states)
      : graph_(graph),
        states_(states),
        gpus_(graph.all(NodeKind::kGpu)),
        nics_(graph.all(NodeKind::kNic)) {}

  std::vector<std::string> run() {
    check_pci_links();
    report_rates();
    check_ports();
    check_gpu_links();
    check_places();
    check_redirection();
    return std::move(findings_);
  }

 private:
  /// Devices of which equal ones have equal keys: whether it is a card, ids, class, model,
  /// generation, rate, port.
  using Key = std::tuple<bool, std::uint32_t, std::uint32_t, std::uint32_t, std::string, unsigned,
                         double, std::string>;

  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    findings_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  std::string name(int node) const {
    const std::string& bus_id = graph_.at(node).bus_id;
    const std::string text = label(graph_, node);
    return bus_id.empty() || text.ends_with(bus_id) ? text : fmt::format("{} at {}", text, bus_id);
  }

  /// Returns "GPU0, GPU1 and GPU2".
  std::string names(const std::vector<int>& nodes) const {
    std::string text;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      text += fmt::format("{}{}",
                          i == 0                  ? ""
                          : i + 1 == nodes.size() ? " and "
                                                  : ", ",
                          nodes.size() == 1 ? name(nodes[i]) : label(graph_, nodes[i]));
    }
    return text;
  }

  /// Returns the card of a NIC, or the NIC itself if it is on none.
  int card_of(int nic) const {
    const int card = graph_.above(nic, NodeKind::kCard);
    return card < 0 ? nic : card;
  }

  /// Returns the NICs on a card.
  std::vector<int> ports_of(int card) const {
    std::vector<int> ports;
    std::copy_if(nics_.begin(), nics_.end(), std::back_inserter(ports),
                 [&](int nic) { return card_of(nic) == card; });
    return ports;
  }

  /// Returns what equal devices share. Cards of unknown ids are equal if their rates are.
  Key key_of(int node) const {
    const Node& it = graph_.at(node);
    double rate = 0;
    if (it.kind == NodeKind::kCard && it.vendor == 0) {
      for (const int nic : ports_of(node)) rate = std::max(rate, graph_.at(nic).up.gb_per_s);
    }
    return {it.kind == NodeKind::kCard,
            it.vendor,
            it.device,
            it.pci_class,
            it.model,
            it.gpu_arch,
            rate,
            ""};
  }

  /// Returns how many NICs NCCL has joined with one.
  long joined(int nic) const {
    const std::string& name = graph_.at(nic).name;
    return std::count(name.begin(), name.end(), '+');
  }

  /// Returns the rate of the fastest port of a card. Of NICs that NCCL has joined ("mlx5_0+mlx5_1")
  /// each card has a part of the rate.
  Bandwidth rate_of(int card) const {
    Bandwidth rate;
    for (const int nic : ports_of(card)) {
      if (joined(nic) > 0) continue;
      if (graph_.at(nic).up.gb_per_s > rate.gb_per_s) rate = graph_.at(nic).up;
    }
    return rate;
  }

  const PciState* state_of(int node) const {
    const auto found = states_.find(graph_.at(node).bus_id);
    return found == states_.end() ? nullptr : &found->second;
  }

  /// Compares the link of a device with what the device could do. Returns whether it is slower.
  bool check_capability(int device) {
    const PciState* const state = state_of(device);
    if (state == nullptr) return false;
    const bool gpu = graph_.at(device).kind == NodeKind::kGpu;
    const Bandwidth now = pci_bandwidth(state->gt_per_s, state->lanes);
    if (!gpu && slower(rate_of(device), now)) return false; // no port needs more
    if (state->lanes > 0 && state->lanes < state->max_lanes) {
      add("The PCI link of {} has {} lanes, and the device {}: put the card into a slot with as "
          "many lanes, or seat it again.",
          name(device), state->lanes, state->max_lanes);
      return true;
    }
    // Links of idle GPUs are slower on purpose.
    if (gpu || state->gt_per_s <= 0 || state->gt_per_s >= state->max_gt_per_s) return false;
    add("The PCI link of {} runs at {} GT/s, and device and slot can do {} GT/s: seat the card "
        "again, and look at the firmware's setting for the slot.",
        name(device), state->gt_per_s, state->max_gt_per_s);
    return true;
  }

  /// Returns the switch with the narrowest link upwards, of those above a device; −1: none.
  int narrowest_switch(int device) const {
    int found = -1;
    for (int at = graph_.at(device).parent; at >= 0; at = graph_.at(at).parent) {
      const Node& it = graph_.at(at);
      const bool whole = it.role == BridgeRole::kSwitch || it.role == BridgeRole::kUpstreamPort;
      if (!whole || !it.up.known() || is_idle_speed(it.up)) continue;
      if (found < 0 || it.up.gb_per_s < graph_.at(found).up.gb_per_s) found = at;
    }
    return found;
  }

  void check_pci_links() {
    std::map<Key, std::vector<int>> equals;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const NodeKind kind = graph_.nodes[i].kind;
      if (kind != NodeKind::kGpu && kind != NodeKind::kCard) continue;
      equals[key_of(static_cast<int>(i))].push_back(static_cast<int>(i));
    }
    std::set<int> told; // switches
    for (const auto& [key, devices] : equals) {
      Bandwidth best, best_above;
      for (const int device : devices) {
        const Bandwidth& up = graph_.at(device).up;
        if (up.gb_per_s > best.gb_per_s) best = up;
        const int above = narrowest_switch(device);
        if (above >= 0 && graph_.at(above).up.gb_per_s > best_above.gb_per_s) {
          best_above = graph_.at(above).up;
        }
      }
      for (const int device : devices) {
        if (check_capability(device)) continue;
        const bool gpu = graph_.at(device).kind == NodeKind::kGpu;
        if (slower(graph_.at(device).up, best)) {
          add("The PCI link of {} has {} GB/s, and that of an equal device {} GB/s: fewer lanes or "
              "a lower generation. Seat the card again, or use a slot like the other's.{}",
              name(device), to_text(graph_.at(device).up), to_text(best),
              gpu ? " A GPU lowers the speed of an idle link, so look again while it works." : "");
        }
        const int above = narrowest_switch(device);
        if (above >= 0 && slower(graph_.at(above).up, best_above) && told.insert(above).second) {
          add("The PCI link of {} upwards, above {}, has {} GB/s, and there are {} GB/s above an "
              "equal device: seat the switch's card or cable again, or use a slot like the "
              "other's.",
              label(graph_, above), label(graph_, device), to_text(graph_.at(above).up),
              to_text(best_above));
        }
        if (!gpu) check_rate(device, told.contains(above) ? -1 : above);
      }
    }
  }

  /// Compares the rate of a card's ports with the PCI links that lead to them.
  void check_rate(int card, int above) {
    const Bandwidth rate = rate_of(card);
    for (const int link : {card, above}) {
      if (link < 0 || !slower(graph_.at(link).up, rate)) continue;
      // Network devices inside a chipset report one lane of generation 1, whatever they have.
      if (slower(graph_.at(link).up, pci_bandwidth(2.5, 2))) continue;
      auto& ports = too_fast_[{to_text(rate), to_text(graph_.at(link).up)}];
      for (const int port : ports_of(card)) ports.push_back(port);
      return;
    }
  }

  void report_rates() {
    for (auto& [figures, ports] : too_fast_) {
      std::sort(ports.begin(), ports.end(),
                [this](int a, int b) { return graph_.at(a).index < graph_.at(b).index; });
      add("{} can transfer {} GB/s{}, and the PCI link of the card only {} GB/s: use a slot with "
          "more lanes or of a later generation.",
          names(ports), figures.first, ports.size() == 1 ? "" : " each", figures.second);
    }
  }

  /// Returns a key that ports in the same role on equal cards share.
  Key port_key(int nic) const {
    const int card = card_of(nic);
    const Node& it = graph_.at(card);
    Key key = key_of(card);
    std::get<double>(key) = 0;
    const std::string function =
        it.bus_id.empty() ? it.name : it.bus_id.substr(it.bus_id.find('.'));
    std::get<7>(key) = fmt::format("{} {} {}", function, graph_.at(nic).port, joined(nic));
    return key;
  }

  void check_ports() {
    std::map<Key, std::vector<int>> equals;
    for (const int nic : nics_) equals[port_key(nic)].push_back(nic);
    const bool any_rdma = std::any_of(nics_.begin(), nics_.end(), [&](int nic) {
      return graph_.at(nic).rdma && !graph_.at(nic).down;
    });
    for (const auto& [key, nics] : equals) {
      Bandwidth best;
      bool any_up = false;
      for (const int nic : nics) {
        if (graph_.at(nic).up.gb_per_s > best.gb_per_s) best = graph_.at(nic).up;
        any_up = any_up || !graph_.at(nic).down;
      }
      for (const int nic : nics) {
        const Node& it = graph_.at(nic);
        const std::uint32_t subclass = graph_.at(card_of(nic)).pci_class >> 8U;
        const bool fabric = subclass == 0x0207 || subclass == 0x0208; // InfiniBand, Omni-Path
        if (it.down && (fabric || (any_up && nics.size() > 1) || (it.rdma && !any_rdma))) {
          add("The port of {} has no link{}: look at the cable, the port of the switch and the "
              "subnet manager or interface settings.",
              name(nic), any_up && nics.size() > 1 ? ", and that of an equal NIC has one" : "");
        }
        if (!it.down && graph_.at(card_of(nic)).vendor != 0 && slower(it.up, best)) {
          add("The port of {} runs at {} GB/s, and that of an equal NIC at {} GB/s: look at the "
              "cable, the transceiver and the port of the switch.",
              name(nic), to_text(it.up), to_text(best));
        }
      }
    }
  }

  void check_gpu_links() {
    std::vector<int> hidden, undescribed;
    std::map<Key, std::vector<int>> equals;
    const bool none = graph_.links.empty();
    for (const int gpu : gpus_) {
      const Node& it = graph_.at(gpu);
      equals[key_of(gpu)].push_back(gpu);
      if (it.hidden_links > 0) {
        hidden.push_back(gpu);
      } else if (none && gpus_.size() > 1 && made_with_links(it.vendor, it.device)) {
        undescribed.push_back(gpu);
      }
    }
    if (!hidden.empty()) {
      add("{} {} links beside PCI whose other ends are not shown, as in virtual machines; paths, "
          "rings and bounds leave these out. Take the description of the machine from the host or "
          "the cloud, or write the links by hand.",
          names(hidden), hidden.size() == 1 ? "has" : "have");
    }
    if (!undescribed.empty()) {
      add("No links beside PCI are described, but {} {} of a model that is built with these; "
          "paths, rings and bounds are those of PCI only. If `nvidia-smi nvlink --status`, "
          "`rocm-smi --showtopo` or `xpu-smi topology -m` shows links, write them by hand; if not, "
          "look at the driver and the fabric manager.",
          names(undescribed), undescribed.size() == 1 ? "is" : "are");
    }
    for (const auto& [key, gpus] : equals) compare_links(gpus);
  }

  /// Compares the links of equal GPUs. Some machines have more links at half of their GPUs.
  void compare_links(const std::vector<int>& gpus) {
    std::vector<Path> links;
    for (const int gpu : gpus) links.push_back(all_links(graph_, gpu));
    const Path most = *std::max_element(links.begin(), links.end(), fewer);
    const auto has_none = [](const Path& it) { return it.path_class == PathClass::kSys; };
    const auto none = std::count_if(links.begin(), links.end(), has_none);
    // Others lack the links to a GPU that has none.
    const auto lacks = [&](const Path& it) { return none > 0 ? has_none(it) : fewer(it, most); };
    const auto lacking = static_cast<std::size_t>(std::count_if(links.begin(), links.end(), lacks));
    const std::size_t full = gpus.size() - lacking;
    if (most.kind == LinkKind::kNvLink ? full < lacking : full <= lacking) return;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (!lacks(links[i])) continue;
      links[i].kind = most.kind;
      add("{} has {}, and equal GPUs {}: look at the driver's log for errors of links, and have "
          "the GPU or its bridge seated again.",
          name(gpus[i]), links_text(links[i]), links_text(most));
    }
  }

  void check_places() {
    const std::vector<int> numas = graph_.all(NodeKind::kNuma);
    if (numas.size() < 2) return;
    std::vector<int> lost;
    std::map<int, std::vector<int>> gpus_at;
    std::map<int, std::set<int>> cards_at;
    const bool rdma =
        std::any_of(nics_.begin(), nics_.end(), [&](int nic) { return graph_.at(nic).rdma; });
    for (const int gpu : gpus_) {
      const int numa = graph_.above(gpu, NodeKind::kNuma);
      if (numa < 0) lost.push_back(gpu);
      if (numa >= 0) gpus_at[numa].push_back(gpu);
    }
    std::size_t cards = 0;
    for (const int nic : nics_) {
      const int numa = graph_.above(nic, NodeKind::kNuma);
      if (numa < 0 && !graph_.at(nic).bus_id.empty()) lost.push_back(nic);
      if (numa >= 0 && (graph_.at(nic).rdma || !rdma))
        cards += cards_at[numa].insert(card_of(nic)).second ? 1 : 0;
    }
    if (!lost.empty()) {
      add("{} {} at none of the {} NUMA nodes: the firmware or the virtual machine does not say "
          "which processor is near. Update the firmware, or give the virtual machine the host's "
          "NUMA nodes.",
          names(lost), lost.size() == 1 ? "is" : "are", numas.size());
    }
    // Fewer cards than NUMA nodes with GPUs cannot be near all of them.
    if (cards < gpus_at.size()) return;
    const bool some = std::any_of(gpus_at.begin(), gpus_at.end(),
                                  [&](const auto& it) { return cards_at.contains(it.first); });
    for (const auto& [numa, gpus] : gpus_at) {
      if (!some || cards_at.contains(numa)) continue;
      add("{} {} no NIC at {}, though the machine has {} for {} NUMA nodes with GPUs: move a card "
          "to a slot of that processor.",
          names(gpus), gpus.size() == 1 ? "has" : "have", label(graph_, numa), cards,
          gpus_at.size());
    }
  }

  void check_redirection() {
    std::vector<int> ports;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int node = static_cast<int>(i);
      if (graph_.nodes[i].role != BridgeRole::kDownstreamPort) continue;
      const PciState* const state = state_of(node);
      if (state != nullptr && state->redirects) ports.push_back(node);
    }
    if (ports.empty()) return;
    add("ACS is on at {} port{} of PCI switches ({}{}): traffic between devices below the same "
        "switch goes up to the processor and back. Unless virtual machines use the devices, turn "
        "it off in the firmware or with setpci.",
        ports.size(), ports.size() == 1 ? "" : "s", graph_.at(ports.front()).bus_id,
        ports.size() == 1 ? "" : " and others");
  }

  const Graph& graph_;
  const PciStates& states_;
  std::vector<int> gpus_, nics_;
  /// Ports whose rate is above what a PCI link can carry, by the two figures.
  std::map<std::pair<std::string, std::string>, std::vector<int>> too_fast_;
  std::vector<std::string> findings_;
};

} // namespace

std::vector<std::string> check(const Graph& graph, const PciStates& states) {
  return Checker(graph, states).run();
}

} // namespace whorl::topology
