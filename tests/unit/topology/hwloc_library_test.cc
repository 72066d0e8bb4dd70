// Tests hwloc as it is loaded at run time: meson.build compiles this file with the name of a
// library that is there, and with one of nobody.
#include "topology/hwloc_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace whorl::topology {
namespace {

TEST(HwlocAtRunTime, DetectsThisMachine) {
  const auto functions = hwloc_functions();
  ASSERT_TRUE(functions.ok()) << functions.status().message();
  const HwlocFunctions& hwloc = **functions;
  hwloc_topology_t topology = nullptr;
  ASSERT_EQ(hwloc.topology_init(&topology), 0);
  EXPECT_EQ(hwloc.topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT), 0);
  EXPECT_EQ(hwloc.topology_set_type_filter(topology, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL),
            0);
  ASSERT_EQ(hwloc.topology_load(topology), 0);
  char* text = nullptr;
  int size = 0;
  ASSERT_EQ(hwloc.topology_export_xmlbuffer(topology, &text, &size, 0), 0);
  EXPECT_THAT(std::string(text), testing::HasSubstr("<object type=\"Machine\""));
  hwloc.free_xmlbuffer(topology, text);
  hwloc.topology_destroy(topology);
}

TEST(HwlocMissing, SaysWhatToInstall) {
  for (int time = 0; time < 2; ++time) {
    const auto functions = hwloc_functions();
    ASSERT_FALSE(functions.ok());
    EXPECT_THAT(functions.status().message(), testing::HasSubstr(WHORL_HWLOC_LIBRARY));
    EXPECT_THAT(functions.status().message(), testing::HasSubstr("install hwloc 2"));
  }
}

} // namespace
} // namespace whorl::topology
