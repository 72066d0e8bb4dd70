#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "topology/fabric_builder.h"
#include "topology/fabric_formats.h"
#include "topology/hostlist.h"
#include "topology/lines.h"

namespace whorl::topology {
namespace {

/// Returns the text between the first quote and the last one, without both; empty: there are none.
std::string_view quoted(std::string_view text) {
  const std::size_t begin = text.find('"'), end = text.rfind('"');
  return begin == end ? std::string_view() : text.substr(begin + 1, end - begin - 1);
}

/// Returns the bandwidth of "4xHDR", or an unknown one.
Bandwidth rate_of(std::string_view word) {
  constexpr std::pair<std::string_view, double> kGbitPerLane[] = {
      {"SDR", 2.5}, {"DDR", 5},  {"QDR", 10},  {"FDR10", 10}, {"FDR", 14},
      {"EDR", 25},  {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};
  int lanes = 0;
  const auto [rest, wrong] = std::from_chars(word.data(), word.data() + word.size(), lanes);
  const std::string_view speed(rest, static_cast<std::size_t>(word.data() + word.size() - rest));
  if (wrong != std::errc() || lanes < 1 || lanes > 12 || !speed.starts_with('x')) return {};
  for (const auto& [name, gbit] : kGbitPerLane) {
    if (speed.substr(1) == name) return reported_bandwidth(gbit * lanes / 8);
  }
  return {};
}

/// Switch, channel adapter or router.
struct Device {
  std::string id; ///< "S-0002c902004210f8": kind and GUID
  std::string description, name;
  int line = 0;  ///< line of its own; 0: others name the device only
  int level = 0; ///< links to the nearest host, for switches; 0: none lead there

  bool is_switch() const { return id.starts_with('S'); }
  bool is_adapter() const { return id.starts_with('H'); }
};

/// Link, as a line says from one of its ends.
struct Wire {
  int a = -1, port_a = 0, b = -1, port_b = 0, line = 0;
  Bandwidth rate;
};

/// Sets of numbers that are joined one by one.
class Sets {
 public:
  explicit Sets(std::size_t size) : parents_(size) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }
  /// Returns the number that stands for the set of `it`.
  int find(int it) {
    while (parent(it) != it) it = parent(it) = parent(parent(it));
    return it;
  }
  void join(int a, int b) { parent(find(a)) = find(b); }

 private:
  int& parent(int it) { return parents_[static_cast<std::size_t>(it)]; }

  std::vector<int> parents_;
};

/// Reader of one file: first the lines, then the levels of the switches, then groups of them.
class IbReader {
 public:
  IbReader(std::string_view text, const std::string& name) : lines_(text), builder_(name) {}

  Result<Fabric> read() {
    while (lines_.next()) WHORL_TRY(read_line(skip_blanks(lines_.line())));
    WHORL_TRY(match_ends());
    find_levels();
    add_leaves();
    add_groups();
    return builder_.finish(FabricFormat::kIbnetdiscover);
  }

 private:
  Device& at(int device) { return devices_[static_cast<std::size_t>(device)]; }

  /// Takes `"S-0002c902004210f8"` off a line; returns the device, or −1.
  int take_device(std::string_view& rest) {
    rest = skip_blanks(rest);
    const std::size_t end = rest.find('"', 1);
    if (!rest.starts_with('"') || end == std::string_view::npos || end < 4 || rest[2] != '-') {
      return -1;
    }
    std::string id(rest.substr(1, end - 1));
    if (!check_name(id).ok()) return -1;
    rest.remove_prefix(end + 1);
    const auto [known, added] = by_id_.emplace(id, static_cast<int>(devices_.size()));
    if (added) devices_.push_back({.id = std::move(id), .description = {}});
    return known->second;
  }

  /// Takes "[12]" off a line; returns the number, or −1.
  static int take_port(std::string_view& rest) {
    int port = -1;
    if (!rest.starts_with('[')) return -1;
    const auto [end, wrong] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), port);
    if (wrong != std::errc() || end == rest.data() + rest.size() || *end != ']') return -1;
    rest.remove_prefix(static_cast<std::size_t>(end + 1 - rest.data()));
    return port;
  }

  Status read_line(std::string_view line) {
    if (line.starts_with('[')) return read_port(line);
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    if (word != "Switch" && word != "Ca" && word != "Rt") {
      // Ids of devices, titles of chassis, and what the program itself complains about.
      const bool known = word.empty() || word.front() == '#' ||
                         word.find('=') != std::string_view::npos || word == "Chassis" ||
                         word == "Hostname:" || word == "Non-Chassis";
      if (!known) {
        builder_.note(lines_.number(), fmt::format("\"{}\" is left out", line.substr(0, 40)));
      }
      return {};
    }
    take_word(rest); // the number of ports
    present_ = take_device(rest);
    if (present_ < 0 || at(present_).id.front() != (word == "Ca" ? 'H' : word.front())) {
      return builder_.error(lines_.number(),
                            fmt::format("after {} belongs the number of ports, and an id such as "
                                        "\"{}-0002c902004210f8\"",
                                        word, word == "Ca" ? 'H' : word.front()));
    }
    Device& device = at(present_);
    if (device.line != 0) {
      return builder_.error(lines_.number(), fmt::format("{} is described already, in line {}",
                                                         device.id, device.line));
    }
    device.line = lines_.number();
    device.description = quoted(rest);
    return {};
  }

  /// Reads `[1](2c903000d1e99) "S-0002c902004210f8"[7] # … "description" lid 4 4xQDR`; the port's
  /// GUID or external number may be missing.
  Status read_port(std::string_view rest) {
    const int line = lines_.number();
    Wire wire{.a = present_, .port_a = take_port(rest), .line = line};
    const std::size_t quote = std::min(rest.find('"'), rest.size());
    rest.remove_prefix(quote);
    wire.b = take_device(rest);
    wire.port_b = take_port(rest);
    if (wire.a < 0 || wire.b < 0 || wire.port_a < 0 || wire.port_b < 0) {
      return builder_.error(line,
                            "this is no port of a device before, such as "
                            "[1] \"S-0002c902004210f8\"[7]");
    }
    const std::string_view remark = rest.substr(std::min(rest.find('#'), rest.size()));
    Device& other = at(wire.b);
    const std::string_view description = quoted(remark);
    if (other.line == 0 && (other.description.empty() || description < other.description)) {
      other.description = description;
    }
    std::string_view words = remark.substr(remark.rfind('"') + 1);
    for (auto word = take_word(words); !word.empty(); word = take_word(words)) {
      if (const Bandwidth rate = rate_of(word); rate.known()) wire.rate = rate;
    }
    wires_.push_back(wire);
    constexpr std::size_t kMost = 2 * FabricBuilder::kMaxNames;
    if (wires_.size() > kMost)
      return builder_.error(line, "there are more ports than a file may have");
    return {};
  }

  /// Makes one wire of the two lines that the ends of a link have; an error if ends disagree.
  Status match_ends() {
    const std::size_t count = wires_.size();
    wires_.reserve(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const Wire& it = wires_[i];
      wires_.push_back({it.b, it.port_b, it.a, it.port_a, it.line, it.rate});
    }
    std::sort(wires_.begin(), wires_.end(), [](const Wire& x, const Wire& y) {
      return std::tie(x.a, x.port_a, x.line) < std::tie(y.a, y.port_a, y.line);
    });
    std::vector<Wire> matched;
    for (const Wire& it : wires_) {
      if (matched.empty() || matched.back().a != it.a || matched.back().port_a != it.port_a) {
        matched.push_back(it);
        continue;
      }
      Wire& known = matched.back();
      if (known.b != it.b || known.port_b != it.port_b) {
        return builder_.error(it.line, fmt::format("port {} of {} leads elsewhere than in line {}",
                                                   it.port_a, at(it.a).id, known.line));
      }
      if (!known.rate.known() || (it.rate.known() && it.rate.gb_per_s < known.rate.gb_per_s)) {
        known.rate = it.rate;
      }
    }
    wires_ = std::move(matched);
    return {};
  }

  /// Returns the host of an adapter by a description such as "node01 HCA-1" or "node01 mlx5_0";
  /// empty: the description is not that of a host.
  static std::string_view host_of(const Device& device) {
    std::string_view rest = device.description;
    const std::string_view host = take_word(rest);
    take_word(rest);
    // Adapters that nobody named are called "MT4123 ConnectX6 Mellanox Technologies".
    const bool model =
        host.starts_with("MT") && host.size() > 2 && host[2] >= '0' && host[2] <= '9';
    return !skip_blanks(rest).empty() || model || !check_name(host).ok() ? std::string_view()
                                                                         : host;
  }

  /// Counts for each switch the links to the nearest host.
  void find_levels() {
    std::vector<int> queue;
    std::vector<std::vector<int>> neighbours(devices_.size());
    for (const Wire& it : wires_) {
      Device& device = at(it.a);
      if (!device.is_switch()) continue;
      if (at(it.b).is_switch()) neighbours[static_cast<std::size_t>(it.a)].push_back(it.b);
      if (device.level == 0 && at(it.b).is_adapter() && !host_of(at(it.b)).empty()) {
        device.level = 1;
        queue.push_back(it.a);
      }
    }
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const int other : neighbours[static_cast<std::size_t>(queue[i])]) {
        if (at(other).level != 0) continue;
        at(other).level = at(queue[i]).level + 1;
        queue.push_back(other);
      }
    }
  }

  /// Names switches: by short names where these tell switches apart, or by ids.
  void name_switches() {
    // "MF0;ib-leaf-01:MQM8700/U1" is the description of a managed switch.
    const auto short_name = [](const Device& device) {
      std::string_view name = device.description;
      const std::size_t semicolon = name.find(';');
      if (semicolon == std::string_view::npos) return name;
      name.remove_prefix(semicolon + 1);
      return name.substr(0, name.find(':'));
    };
    std::map<std::string_view, int> uses;
    for (const Device& it : devices_) {
      if (it.is_switch()) ++uses[short_name(it)];
    }
    for (Device& it : devices_) {
      const std::string_view name = short_name(it);
      const bool tells = it.is_switch() && uses[name] == 1 && check_name(name).ok();
      it.name = tells ? name : std::string_view(it.id);
    }
  }

  void add_leaves() {
    name_switches();
    above_.assign(devices_.size(), -1);
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].level == 1) above_[i] = builder_.add(devices_[i].name, devices_[i].line);
    }
    std::vector<std::string_view> nameless;
    for (const Device& it : devices_) {
      const bool counts = it.description.find("Aggregation Node") == std::string::npos; // of SHARP
      if (it.is_adapter() && host_of(it).empty() && counts) nameless.push_back(it.id);
    }
    if (!nameless.empty()) {
      builder_.note(
          fmt::format("adapters that are not named after their host are left out: {}, "
                      "such as {}",
                      nameless.size(), *std::min_element(nameless.begin(), nameless.end())));
    }
    for (const Wire& it : wires_) {
      const int leaf = above_[static_cast<std::size_t>(it.a)];
      if (leaf < 0) continue;
      if (const auto host = host_of(at(it.b)); at(it.b).is_adapter() && !host.empty()) {
        builder_.add_host(leaf, host, it.rate);
      }
    }
    set_bandwidths([](int device) { return device; });
  }

  /// Sets the bandwidth of all links that leave each set of switches; `set_of` gives the set of a
  /// switch.
  template <class SetOf>
  void set_bandwidths(SetOf&& set_of) {
    std::map<int, double> sums;
    for (const Wire& it : wires_) {
      if (!at(it.a).is_switch() || !at(it.b).is_switch() || set_of(it.a) == set_of(it.b)) continue;
      sums[set_of(it.a)] += it.rate.gb_per_s;
    }
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto sum = sums.find(set_of(static_cast<int>(i)));
      if (above_[i] < 0 || sum == sums.end()) continue;
      builder_.set_up(above_[i], reported_bandwidth(sum->second));
    }
  }

  /// Puts groups above the leaves: first those that are connected by links of a leaf, then also by
  /// links of the next level, and so on while there are several.
  void add_groups() {
    Sets sets(devices_.size());
    int last = 0;
    for (const Device& it : devices_) last = std::max(last, it.level);
    std::size_t count = groups_of(sets).size();
    for (int level = 1, stage = 1; level <= last && count > 1; ++level) {
      for (const Wire& it : wires_) {
        const int a = at(it.a).level, b = at(it.b).level;
        if (a > 0 && b > 0 && std::min(a, b) == level) sets.join(it.a, it.b);
      }
      const auto groups = groups_of(sets);
      if (groups.size() == count) continue;
      count = groups.size();
      add_stage(groups, ++stage);
      set_bandwidths([&sets](int device) { return sets.find(device); });
    }
  }

  /// Returns the leaves of each set that has some, by name.
  std::map<int, std::vector<int>> groups_of(Sets& sets) {
    std::map<int, std::vector<int>> groups;
    for (int i = 0; i < static_cast<int>(devices_.size()); ++i) {
      if (at(i).level == 1) groups[sets.find(i)].push_back(i);
    }
    for (auto& [set, leaves] : groups) {
      std::sort(leaves.begin(), leaves.end(), [this](int a, int b) { return by_name(a, b); });
    }
    return groups;
  }

  bool by_name(int a, int b) { return natural_less(at(a).name, at(b).name); }

  void add_stage(const std::map<int, std::vector<int>>& groups, int stage) {
    std::vector<const std::vector<int>*> ordered;
    for (const auto& [set, leaves] : groups) ordered.push_back(&leaves);
    std::sort(ordered.begin(), ordered.end(),
              [this](auto* a, auto* b) { return by_name(a->front(), b->front()); });
    for (std::size_t i = 0; i < ordered.size(); ++i) {
      const std::string name = ordered.size() == 1 ? "network"
                               : stage == 2        ? fmt::format("group {}", i + 1)
                                            : fmt::format("group {} of level {}", i + 1, stage);
      const int group = builder_.add(name, at(ordered[i]->front()).line);
      for (const int leaf : *ordered[i]) {
        int& above = above_[static_cast<std::size_t>(leaf)];
        builder_.add_switch(group, above);
        above = group;
      }
    }
  }

  Lines lines_;
  FabricBuilder builder_;
  std::vector<Device> devices_;
  std::unordered_map<std::string, int> by_id_;
  std::vector<Wire> wires_; ///< each link in both directions
  std::vector<int> above_;  ///< highest switch or group so far above each leaf, in the builder
  int present_ = -1;        ///< device that the lines of ports belong to
};

} // namespace

Result<Fabric> read_ibnetdiscover(std::string_view text, const std::string& name) {
  return IbReader(text, name).read();
}

} // namespace whorl::topology
