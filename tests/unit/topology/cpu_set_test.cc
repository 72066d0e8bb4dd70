#include "topology/cpu_set.h"

#include <gtest/gtest.h>

namespace whorl::topology {
namespace {

TEST(CpuSet, ReadsMasks) {
  const auto of = [](const char* text) {
    const auto set = CpuSet::parse_mask(text);
    return set ? set->ranges() : "none";
  };
  EXPECT_EQ(of("000000ff,ffff0000,00ffffff"), "0-23,48-71");
  EXPECT_EQ(of("0x000000ff,0xffffffff"), "0-39");
  EXPECT_EQ(of("0x00000303,0x03030000,,0x03030303"),
            "0-1,8-9,16-17,24-25,80-81,88-89,96-97,104-105");
  EXPECT_EQ(of("0x0"), "");
  EXPECT_EQ(of("1"), "0");
}

TEST(CpuSet, RefusesOtherText) {
  for (const char* text : {"", ",", "0x1,", "0xf...f", "g", "0x123456789", "1 2", "-1"}) {
    EXPECT_FALSE(CpuSet::parse_mask(text)) << text;
  }
  std::string long_mask = "1";
  for (int i = 0; i < 512; ++i) long_mask += ",0";
  EXPECT_FALSE(CpuSet::parse_mask(long_mask));
}

TEST(CpuSet, WritesWhatItReads) {
  for (const char* text : {"0x000000ff,0xffff0000,0x00ffffff", "0x0", "0x80000000,0x00000000"}) {
    EXPECT_EQ(CpuSet::parse_mask(text).value().mask(), text);
  }
}

TEST(CpuSet, ComparesSets) {
  const CpuSet low = CpuSet::parse_mask("ff").value(), high = CpuSet::parse_mask("1,0,0").value();
  CpuSet both = low;
  both |= high;
  EXPECT_EQ(both.ranges(), "0-7,64");
  EXPECT_EQ(both.count(), 9);
  EXPECT_EQ(both.numbers(), (std::vector<unsigned>{0, 1, 2, 3, 4, 5, 6, 7, 64}));
  EXPECT_TRUE(CpuSet().numbers().empty());
  EXPECT_TRUE(both.includes(low) && both.includes(high) && both.includes(CpuSet()));
  EXPECT_FALSE(low.includes(both));
  EXPECT_TRUE(low.intersects(both));
  EXPECT_FALSE(low.intersects(high));
  CpuSet made;
  for (const unsigned cpu : {64U, 0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) made.add(cpu);
  EXPECT_EQ(made, both);
}

} // namespace
} // namespace whorl::topology
