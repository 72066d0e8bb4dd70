// Tests of what WHORL_FAULTY may say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "transports/faulty/settings.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

TEST(FaultySettings, HaveAllParts) {
  const auto read = FaultySettings::parse(
      "seed=7,rank=1,delay=0.25:5ms,reorder=2us,kill@317,kill@20:19,stall@200:3s,cut@50,stall@9,"
      "truncate@8");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->seed, 7u);
  EXPECT_EQ(read->rank, 1);
  EXPECT_EQ(read->delay_share, 0.25);
  EXPECT_EQ(read->delay_ns, 5'000'000u);
  EXPECT_EQ(read->reorder_ns, 2'000u);
  struct Expected {
    Fault::Kind kind;
    std::uint64_t message, duration_ns;
    int signal;
  };
  const Expected expected[] = {
      {Fault::Kind::kTruncate, 8, 0, 0},
      {Fault::Kind::kStall, 9, 0, 0},
      {Fault::Kind::kKill, 20, 0, SIGSTOP},
      {Fault::Kind::kCut, 50, 0, 0},
      {Fault::Kind::kStall, 200, 3'000'000'000, 0},
      {Fault::Kind::kKill, 317, 0, SIGKILL},
  };
  ASSERT_EQ(read->faults.size(), std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(read->faults[i].kind, expected[i].kind) << i;
    EXPECT_EQ(read->faults[i].message, expected[i].message) << i;
    EXPECT_EQ(read->faults[i].duration_ns, expected[i].duration_ns) << i;
    EXPECT_EQ(read->faults[i].signal, expected[i].signal) << i;
  }
}

TEST(FaultySettings, NameThePartThatIsWrong) {
  for (const char* const part : {"",
                                 "seed",
                                 "seed=",
                                 "seed=-1",
                                 "seed=7x",
                                 "rank=-1",
                                 "rank=one",
                                 "delay=0.1",
                                 "delay=:5ms",
                                 "delay=2:5ms",
                                 "delay=nan:5ms",
                                 "delay=0.1:5",
                                 "delay=0.1:0ms",
                                 "delay=0.1:5 ms",
                                 "delay=0.1:3601s",
                                 "reorder=2",
                                 "reorder=-2ms",
                                 "kill",
                                 "kill@",
                                 "kill@0",
                                 "kill@1:0",
                                 "kill@1:65",
                                 "kill@1:x",
                                 "kill@99999999999999999999",
                                 "stall@1:",
                                 "stall@1:2",
                                 "cut@1:1s",
                                 "truncate@1:1",
                                 "drop@1",
                                 "Seed=1",
                                 " seed=1"}) {
    for (const std::string& text : {std::string(part), "seed=1," + std::string(part) + ",cut@1"}) {
      const auto read = FaultySettings::parse(text);
      ASSERT_FALSE(read.ok()) << text;
      EXPECT_EQ(read.status().code(), Code::kInvalidUsage);
      EXPECT_THAT(read.status().message(), HasSubstr("WHORL_FAULTY=\"" + text + "\": \"" +
                                                     std::string(part) + "\" should have "));
    }
  }
}

} // namespace
} // namespace whorl
