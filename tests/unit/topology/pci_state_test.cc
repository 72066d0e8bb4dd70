#include "topology/pci_state.h"

#include <gtest/gtest.h>

#include <string>

#include "sysfs.h"

namespace whorl::topology {
namespace {

/// Returns a machine with a GPU below a bridge.
Graph one_gpu() {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  graph.nodes.push_back({.kind = NodeKind::kBridge, .parent = 0, .bus_id = "0000:10:00.0"});
  graph.nodes.push_back({.kind = NodeKind::kGpu, .parent = 1, .bus_id = "0000:11:00.0"});
  return graph;
}

/// Returns the registers of a device with two extended capabilities: at 0x100, and ACS at 0x140
/// with what its control register holds.
std::string registers(char control) {
  std::string bytes(0x150, '\0');
  bytes[0x100] = 0x01; // errors
  bytes[0x102] = 0x01;
  bytes[0x103] = 0x14; // the next one is at 0x140
  bytes[0x140] = 0x0d;
  bytes[0x142] = 0x01;
  bytes[0x146] = control;
  return bytes;
}

TEST(PciState, IsRead) {
  const Sysfs sysfs;
  const std::string port = "devices/pci0000:10/0000:10:00.0/", gpu = port + "0000:11:00.0/";
  sysfs.write(port + "max_link_speed", "16.0 GT/s PCIe");
  sysfs.write(gpu + "current_link_speed", "2.5 GT/s PCIe");
  sysfs.write(gpu + "max_link_speed", "32.0 GT/s PCIe");
  sysfs.write(gpu + "current_link_width", "8");
  sysfs.write(gpu + "max_link_width", "16");
  sysfs.link("bus/pci/devices/0000:11:00.0", gpu);
  const PciStates states = read_pci_states(one_gpu(), sysfs.root());
  ASSERT_EQ(states.size(), 1);
  const PciState& state = states.at("0000:11:00.0");
  EXPECT_EQ(state.gt_per_s, 2.5);
  EXPECT_EQ(state.max_gt_per_s, 16); // of the slot
  EXPECT_EQ(state.lanes, 8);
  EXPECT_EQ(state.max_lanes, 16);
}

TEST(PciState, OfVirtualFunctionsIsUnknown) {
  const Sysfs sysfs;
  const std::string gpu = "bus/pci/devices/0000:11:00.0/";
  sysfs.write(gpu + "current_link_speed", "Unknown");
  sysfs.write(gpu + "max_link_speed", "Unknown");
  sysfs.write(gpu + "current_link_width", "0");
  sysfs.write(gpu + "max_link_width", "255");
  const PciState state = read_pci_states(one_gpu(), sysfs.root()).at("0000:11:00.0");
  EXPECT_EQ(state.max_gt_per_s, 0);
  EXPECT_EQ(state.max_lanes, 0);
  EXPECT_TRUE(read_pci_states(one_gpu(), "/nonexistent").empty());
}

TEST(PciState, TellsRedirection) {
  struct Case {
    std::string registers;
    bool redirects;
  };
  std::string endless = registers(0x1d);
  endless[0x140] = 0x01; // no ACS, and the next capability is the first
  endless[0x143] = 0x10;
  const Case cases[] = {
      {registers(0x1d), true},
      {registers(0x04), true},
      {registers(0x08), true},
      {registers(0x01), false},                 // checks sources only
      {registers(0x1d).substr(0, 0x40), false}, // what Linux shows to others than root
      {registers(0x1d).substr(0, 0x144), false},
      {endless, false},
      {"", false},
  };
  for (const Case& it : cases) {
    const Sysfs sysfs;
    sysfs.write("bus/pci/devices/0000:10:00.0/config", it.registers);
    EXPECT_EQ(read_pci_states(one_gpu(), sysfs.root()).at("0000:10:00.0").redirects, it.redirects)
        << it.registers.size();
  }
}

} // namespace
} // namespace whorl::topology
