// Tests of files with costs of links.
#include "tuning/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace whorl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CostFile, ReplacesWhatItGives) {
  const auto file = CostFile::parse(
      R"({"host": {"boundary_gb_per_s": 12.5}, "network": {"alpha_us": 9, "beta_us_per_kib": 0.25}})",
      "costs.json");
  ASSERT_TRUE(file.ok()) << file.status().message();
  Level host{.scope = Scope::kHost}, network{.scope = Scope::kNetwork}, leaf{.scope = Scope::kLeaf};
  for (Level* level : {&host, &network, &leaf}) file->apply(*level);
  EXPECT_DOUBLE_EQ(gb_per_s(host.boundary_us_per_kib), 12.5);
  EXPECT_EQ(host.link, Link());
  EXPECT_EQ(network.link.alpha_us, 9);
  EXPECT_EQ(network.link.beta_us_per_kib, 0.25);
  EXPECT_EQ(network.link.overhead_us, Link().overhead_us);
  EXPECT_EQ(leaf, (Level{.scope = Scope::kLeaf}));
}

TEST(CostFile, WrongOnesAreRefusedWithAReason) {
  struct Case {
    const char* text;
    const char* reason;
  };
  for (const Case& one :
       {Case{"{", "this is not JSON from line 1, column 2 on; costs are written as {\"host\": {"},
        Case{"", "line 1, column 1 on"},
        Case{"{\"host\":\n  {\"alpha_us\": 1,}}", "line 2, column 18"},
        Case{"{\"h\xff\": {}}", "line 1, column 4 on"},
        Case{R"({"host": {"alpha_us": 1e999}})", "a number is too large; costs are numbers from 0"},
        Case{"[]", "not an object of levels"},
        Case{R"({"rack": {}})", "no level \"rack\"; there are cache, host, leaf"},
        Case{R"({"host": 3})", "\"host\" is not an object"},
        Case{R"({"host": {"alpha": 3}})", "\"alpha\" of \"host\" is unknown; there are alpha_us"},
        Case{R"({"host": {"alpha_us": "3"}})", "\"alpha_us\" of \"host\" is not a number"},
        Case{R"({"host": {"alpha_us": -3}})", "not a number from 0"},
        Case{R"({"host": {"alpha_us": 1e300}})", "not a number from 0"},
        Case{R"({"host": {"boundary_gb_per_s": 1e-320}})", "not a number from 0"}, // a cost of ∞
        Case{R"({"\u001b[31m": {}})", "no level \" [31m\""}}) {
    const auto refused = CostFile::parse(one.text, "costs.json");
    ASSERT_FALSE(refused.ok()) << one.text;
    EXPECT_THAT(refused.status().message(), HasSubstr("costs.json: ")) << one.text;
    EXPECT_THAT(refused.status().message(), HasSubstr(one.reason)) << one.text;
    EXPECT_THAT(refused.status().message(), Not(HasSubstr("exception"))) << "the library's words";
  }
}

} // namespace
} // namespace whorl
