#include "schedule/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "unit/schedule/handmade.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

TEST(Simulate, CountsRounds) {
  for (const int n : {2, 3, 8, 17}) {
    for (const handmade::Named& named : handmade::all(n)) {
      const auto report = verify(named.schedules, named.spec);
      const auto simulation = simulate(named.schedules, named.spec);
      ASSERT_TRUE(report.ok() && simulation.ok()) << named.name;
      EXPECT_EQ(simulation->messages.size(), static_cast<std::size_t>(report->messages));
      // A FIFO with several messages takes longer than the longest chain.
      EXPECT_GE(simulation->end, report->rounds) << named.name;
    }
    EXPECT_EQ(simulate(handmade::ring(n), {})->end, 2 * (n - 1));
    EXPECT_EQ(simulate(handmade::two_shot(n), {})->end, 2);
  }
}

TEST(Simulate, PipelinesAndSlots) {
  const auto end = [](const SimulationCosts& costs) {
    const auto simulation = simulate(handmade::tree(7, 4), {}, costs);
    EXPECT_TRUE(simulation.ok()) << simulation.status().message();
    return simulation.ok() ? simulation->end : -1;
  };
  // Two levels up, then three more chunks behind the first; then the lanes of the middle level
  // handle the first chunk on its way down: again one level and three chunks.
  EXPECT_EQ(end({}), 4 + 4);
  EXPECT_EQ(end({.message = 2, .chunk = 0.5}), 2.5 * (4 + 4));
  EXPECT_EQ(end({.slots = 3}), 4 + 4);
  EXPECT_THAT(simulate(handmade::ring(3), {}, {.slots = 1}).status().message(),
              HasSubstr("Deadlock"));
  EXPECT_THAT(simulate(handmade::ring(3), {.root = 5}).status().message(), HasSubstr("no root"));
}

TEST(Draw, Table) {
  EXPECT_EQ(to_table(*simulate(handmade::ring(3), {}), 3, {}),
            "  time  rank 0        rank 1        rank 2\n"
            "     1  1 (1) from 2  2 (1) from 0  0 (1) from 1\n"
            "     2  0 (2) from 2  1 (2) from 0  2 (2) from 1\n"
            "     3  2 from 2      0 from 0      1 from 1\n"
            "     4  1 from 2      2 from 0      0 from 1\n");
  EXPECT_EQ(to_table(*simulate(handmade::all_to_all(2), {Collective::kAllToAll}), 2,
                     {Collective::kAllToAll}),
            "  time  rank 0      rank 1\n"
            "     1  1:0 from 1  0:1 from 0\n");
}

/// Checks that every message has an arrow; WHORL_DRAW_DIR keeps the pictures.
TEST(Draw, Svg) {
  for (const int n : {2, 4, 8}) {
    for (const handmade::Named& named : handmade::all(n)) {
      const auto simulation = simulate(named.schedules, named.spec);
      const std::string title = std::string("<") + named.name + "> of " + std::to_string(n);
      const std::string svg = to_svg(*simulation, n, named.spec, title);
      std::size_t arrows = 0;
      for (auto at = svg.find("marker-end"); at != svg.npos; at = svg.find("marker-end", at + 1)) {
        ++arrows;
      }
      EXPECT_EQ(arrows, simulation->messages.size());
      EXPECT_THAT(svg, HasSubstr(std::string("&lt;") + named.name + "&gt;"));
      if (const char* dir = std::getenv("WHORL_DRAW_DIR")) {
        std::ofstream(std::string(dir) + "/" + named.name + std::to_string(n) + ".svg") << svg;
      }
    }
  }
}

} // namespace
} // namespace whorl
