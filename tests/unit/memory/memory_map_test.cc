#include "memory/memory_map.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

TEST(MemoryMap, ParsesTheKernelsLines) {
  Mapping mapping;
  EXPECT_TRUE(parse_mapping(
      "7f00a000-7f00c000 rw-s 00002000 00:01 1234    /memfd:whorl-heap (deleted)", &mapping));
  EXPECT_EQ(mapping.begin, 0x7f00a000U);
  EXPECT_EQ(mapping.end, 0x7f00c000U);
  EXPECT_EQ(mapping.access, "rw-s");
  EXPECT_EQ(mapping.offset, 0x2000U);
  EXPECT_EQ(mapping.inode, 1234U);
  EXPECT_EQ(mapping.path, "/memfd:whorl-heap (deleted)");
  EXPECT_FALSE(is_plain_memory(mapping));
  EXPECT_TRUE(parse_mapping("1000-2000 rw-p 00000000 00:00 0", &mapping));
  EXPECT_TRUE(is_plain_memory(mapping));
  EXPECT_TRUE(parse_mapping("1000-2000 rw-p 00000000 00:00 0     [heap]", &mapping));
  EXPECT_TRUE(is_plain_memory(mapping));
  EXPECT_TRUE(parse_mapping("1000-2000 rw-p 00000000 00:00 0     [stack]", &mapping));
  EXPECT_FALSE(is_plain_memory(mapping));
  for (const char* bad : {"", "1000", "1000-2000", "1000-2000 rw-p", "zz-2000 rw-p 0 00:00 0",
                          "2000-1000 rw-p 0 00:00 0"}) {
    EXPECT_FALSE(parse_mapping(bad, &mapping)) << bad;
  }
}

} // namespace
} // namespace whorl
