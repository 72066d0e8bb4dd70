// Tests of options from whorlConfig_t: accepted values, precedence over the environment, and the
// names in errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "comm/options.h"
#include "tests/unit/comm/clean_environment.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
  test::CleanEnvironment environment_;
};

whorlConfig_t initial() { return WHORL_CONFIG_INITIALIZER; }

struct Field {
  const char* name;
  int whorlConfig_t::*member;
  int low, high;
};
constexpr Field kFields[] = {
    {"blocking", &whorlConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &whorlConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &whorlConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &whorlConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &whorlConfig_t::splitShare, 0, 1},
    {"collnetEnable", &whorlConfig_t::collnetEnable, 0, 1},
    {"CTAPolicy", &whorlConfig_t::CTAPolicy, 0, 3},
    {"shrinkShare", &whorlConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &whorlConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &whorlConfig_t::nChannelsPerNetPeer, 1, INT_MAX},
    {"nvlinkCentricSched", &whorlConfig_t::nvlinkCentricSched, 0, 1},
    {"timeoutMs", &whorlConfig_t::timeoutMs, 1, INT_MAX},
};

TEST_F(ConfigTest, FieldsAreAcceptedWithinTheirBounds) {
  for (const Field& field : kFields) {
    for (const int value : {field.low, field.high}) {
      whorlConfig_t config = initial();
      config.*field.member = value;
      const auto options = make_options(&config);
      EXPECT_TRUE(options.ok()) << options.status().message();
    }
  }
}

TEST_F(ConfigTest, FieldsOutsideTheirBoundsAreRefused) {
  for (const Field& field : kFields) {
    for (const int value : {field.low - 1, -5, INT_MIN + 1, INT_MAX}) {
      if (value >= field.low && value <= field.high) continue;
      whorlConfig_t config = initial();
      config.*field.member = value;
      const auto options = make_options(&config);
      ASSERT_FALSE(options.ok()) << field.name << " " << value;
      EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
      const std::string low = std::to_string(field.low), high = std::to_string(field.high);
      EXPECT_EQ(options.status().message(),
                std::string("config.") + field.name + " is " + std::to_string(value) +
                    "; it must be " +
                    (field.high == INT_MAX ? "at least " + low : "from " + low + " to " + high));
    }
  }
}

TEST_F(ConfigTest, FieldsThatAreNotSetLeaveTheEnvironment) {
  setenv("WHORL_MAX_CHANNELS", "7", 1);
  setenv("WHORL_CHANNELS", "3", 1);
  setenv("WHORL_TIMEOUT_MS", "1234", 1);
  setenv("WHORL_MEMORY_BUDGET", "5678", 1);
  const whorlConfig_t config = initial();
  for (const whorlConfig_t* const given : {static_cast<const whorlConfig_t*>(nullptr), &config}) {
    const auto options = make_options(given);
    ASSERT_TRUE(options.ok()) << options.status().message();
    EXPECT_EQ(options->max_channels, 7);
    EXPECT_EQ(options->channels, 3);
    EXPECT_EQ(options->timeout_ns, 1'234'000'000U);
    EXPECT_EQ(options->memory_budget, 5678U);
    EXPECT_EQ(options->name, "");
  }
}

TEST_F(ConfigTest, FieldsThatAreSetOverrideTheEnvironment) {
  setenv("WHORL_MAX_CHANNELS", "7", 1);
  setenv("WHORL_TIMEOUT_MS", "1234", 1);
  setenv("WHORL_MEMORY_BUDGET", "5678", 1);
  std::string name = "tensor-parallel";
  whorlConfig_t config = initial();
  config.maxCTAs = 9;
  config.minCTAs = 4;
  config.timeoutMs = INT_MAX;
  config.memoryBudget = UINT64_MAX;
  config.netName = "tcp";
  config.commName = name.c_str();
  const auto options = make_options(&config);
  ASSERT_TRUE(options.ok()) << options.status().message();
  name.assign(name.size(), '?'); // options hold a copy of the name
  EXPECT_EQ(options->max_channels, 9);
  EXPECT_EQ(options->channels, 4);
  EXPECT_EQ(options->timeout_ns, std::uint64_t{INT_MAX} * 1'000'000);
  EXPECT_EQ(options->memory_budget, UINT64_MAX);
  EXPECT_EQ(options->name, "tensor-parallel");
}

TEST_F(ConfigTest, ChannelsOfAConfigAreBroughtTogether) {
  struct Case {
    int min, max, per_peer;
    int channels, max_channels;
  };
  constexpr int kUnset = WHORL_CONFIG_UNDEF_INT;
  for (const Case& c : {Case{kUnset, kUnset, kUnset, 1, 2}, Case{kUnset, 1, kUnset, 1, 2},
                        Case{kUnset, 1024, kUnset, 1, 16}, Case{1024, kUnset, kUnset, 2, 2},
                        Case{3, 8, kUnset, 3, 8}, Case{8, kUnset, 4, 4, 4},
                        Case{1024, 1024, kUnset, 16, 16}, Case{kUnset, 4, 6, 1, 6}}) {
    whorlConfig_t config = initial();
    config.minCTAs = c.min;
    config.maxCTAs = c.max;
    config.nChannelsPerNetPeer = c.per_peer;
    const auto options = make_options(&config);
    ASSERT_TRUE(options.ok()) << options.status().message();
    EXPECT_EQ(options->channels, c.channels) << c.min << " " << c.max;
    EXPECT_EQ(options->max_channels, c.max_channels) << c.min << " " << c.max;
  }
}

TEST_F(ConfigTest, ALeastNumberOfChannelsAboveTheLargestIsRefused) {
  whorlConfig_t config = initial();
  config.minCTAs = 8;
  config.maxCTAs = 4;
  const auto options = make_options(&config);
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(options.status().message(), "config.minCTAs is 8, more than config.maxCTAs, 4");
}

TEST_F(ConfigTest, AnyTrafficClassIsIgnored) {
  whorlConfig_t config = initial();
  config.trafficClass = -77;
  const auto options = make_options(&config);
  EXPECT_TRUE(options.ok()) << options.status().message();
}

TEST_F(ConfigTest, NamesOfNcclMeanTcp) {
  for (const char* const net : {"tcp", "Socket", "IB"}) {
    whorlConfig_t config = initial();
    config.netName = net;
    EXPECT_TRUE(make_options(&config).ok()) << net;
  }
}

TEST_F(ConfigTest, OtherNetworksAreRefused) {
  for (const char* const net : {"EFA", "", "TCP"}) {
    whorlConfig_t config = initial();
    config.netName = net;
    const auto options = make_options(&config);
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(options.status().message(),
              std::string("config.netName is \"") + net + "\"; there is \"tcp\"");
  }
}

TEST_F(ConfigTest, AConfigThatWasNotInitialisedIsRefused) {
  whorlConfig_t zeroed{};
  whorlConfig_t other_magic = initial();
  other_magic.magic ^= 1U;
  whorlConfig_t too_short = initial();
  too_short.size = offsetof(whorlConfig_t, cgaClusterSize) - 1;
  for (const whorlConfig_t* const config : {&zeroed, &other_magic, &too_short}) {
    const auto options = make_options(config);
    ASSERT_FALSE(options.ok());
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(options.status().message(), HasSubstr("WHORL_CONFIG_INITIALIZER"));
  }
}

TEST_F(ConfigTest, OnlyTheFieldsOfAnOlderHeaderAreRead) {
  whorlConfig_t config = initial();
  config.maxCTAs = 5;
  config.size = offsetof(whorlConfig_t, netName);
  // Bytes beyond config.size do not belong to the caller's config.
  config.netName = reinterpret_cast<const char*>(std::uintptr_t{8});
  config.commName = reinterpret_cast<const char*>(std::uintptr_t{8});
  config.timeoutMs = -1;
  config.memoryBudget = 1;
  const auto options = make_options(&config);
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->max_channels, 5);
  EXPECT_EQ(options->memory_budget, 0U);
  EXPECT_EQ(options->timeout_ns, 30'000'000'000U);
}

TEST_F(ConfigTest, AConfigOfANewerHeaderIsAccepted) {
  struct {
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    int later[4] = {-1, -1, -1, -1};
  } newer;
  newer.config.size = sizeof newer;
  newer.config.timeoutMs = 77;
  const auto options = make_options(&newer.config);
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->timeout_ns, 77'000'000U);
}

TEST_F(ConfigTest, CreationIsBlockingUnlessTheConfigSaysOtherwise) {
  whorlConfig_t config = initial();
  EXPECT_TRUE(blocking(nullptr));
  EXPECT_TRUE(blocking(&config));
  config.blocking = 1;
  EXPECT_TRUE(blocking(&config));
  config.blocking = 0;
  EXPECT_FALSE(blocking(&config));
}

} // namespace
} // namespace whorl
