#include "topology/pci_state.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "topology/text_file.h"

namespace whorl::topology {
namespace {

namespace fs = std::filesystem;

/// Returns the number of lanes in a file; 0 for what no link has, as of virtual functions.
int lanes_in(const fs::path& path) {
  const double lanes = first_number(path);
  return pci_bandwidth(2.5, lanes >= 1 && lanes <= 32 ? static_cast<int>(lanes) : 0).known()
             ? static_cast<int>(lanes)
             : 0;
}

/// Returns whether the registers of a bridge redirect requests or completions between the devices
/// below it: its Access Control Services, among the extended capabilities.
bool redirects(const fs::path& registers) {
  std::ifstream file(registers, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto word = [&bytes](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 4; i-- > 0;) {
      value =
          value << 8U | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    return value;
  };
  constexpr std::size_t kFirst = 0x100, kAcs = 0x000d, kRequests = 0x4, kCompletions = 0x8;
  std::size_t at = kFirst;
  for (int seen = 0; at >= kFirst && at < bytes.size() && seen < 1000; ++seen) {
    const std::size_t header = word(at);
    const std::size_t control = word(at + 4) >> 16U;
    if ((header & 0xffffU) == kAcs) return (control & (kRequests | kCompletions)) != 0;
    at = header >> 20U;
  }
  return false;
}

} // namespace

PciStates read_pci_states(const Graph& graph, const std::string& root) {
  PciStates states;
  for (const Node& node : graph.nodes) {
    const bool bridge = node.kind == NodeKind::kBridge;
    if (node.bus_id.empty() ||
        !(bridge || node.kind == NodeKind::kGpu || node.kind == NodeKind::kCard)) {
      continue;
    }
    const fs::path device = fs::path(root) / "bus/pci/devices" / node.bus_id;
    std::error_code missing;
    if (!fs::exists(device, missing)) continue;
    PciState& state = states[node.bus_id];
    if (bridge) {
      state.redirects = redirects(device / "config");
      continue;
    }
    state.gt_per_s = first_number(device / "current_link_speed");
    state.lanes = lanes_in(device / "current_link_width");
    state.max_gt_per_s = first_number(device / "max_link_speed");
    state.max_lanes = lanes_in(device / "max_link_width");
    // The entry is a link to the device's folder, which is in that of the port above it.
    const double slot = first_number(device / ".." / "max_link_speed");
    if (slot > 0) state.max_gt_per_s = std::min(state.max_gt_per_s, slot);
  }
  return states;
}

} // namespace whorl::topology
