// Tests of what a rank says of its place.
#include "comm/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/system.h"
#include "tests/support/scoped_env.h"

namespace whorl {
namespace {

using test::ScopedEnv;
using ::testing::HasSubstr;

/// System whose calling thread may use the processing units of one word.
class BoundTo final : public System {
 public:
  explicit BoundTo(std::uint64_t cpus) : cpus_(cpus) {}
  int affinity(std::span<std::uint64_t> bits) noexcept override {
    std::fill(bits.begin(), bits.end(), 0);
    bits[0] = cpus_;
    return 8;
  }

 private:
  std::uint64_t cpus_;
};

std::string source(const char* file) {
  const char* const root = std::getenv("WHORL_SOURCE_ROOT");
  return std::string(root == nullptr ? "." : root) + "/" + file;
}

TEST(Place, IsInTheMachineThatAFileDescribes) {
  const ScopedEnv file{{"WHORL_TOPO_FILE", source("docs/two_gpus.xml")}};
  BoundTo bound(std::uint64_t{1} << 20U);
  const ScopedSystem scope(&bound);
  const auto place = describe_place();
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(cpus_of(*place), 1);
  EXPECT_EQ(place->numa, 1);
  EXPECT_EQ(place->nic_numa, 1);
  EXPECT_DOUBLE_EQ(place->nic_gb_per_s, 25);
}

TEST(Place, IsUnknownInAFileWithoutTheProcessors) {
  const ScopedEnv file{{"WHORL_TOPO_FILE", source("docs/two_gpus.xml")}};
  BoundTo bound(std::uint64_t{1} << 60U);
  const ScopedSystem scope(&bound);
  const auto place = describe_place();
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->package, -1);
  EXPECT_EQ(place->numa, -1);
  EXPECT_EQ(place->cache, -1);
}

TEST(Place, AWrongFileIsAnErrorThatNamesTheVariable) {
  const ScopedEnv file{{"WHORL_TOPO_FILE", "/nonexistent.xml"}};
  const auto place = describe_place();
  ASSERT_FALSE(place.ok());
  EXPECT_THAT(place.status().message(), HasSubstr("WHORL_TOPO_FILE: /nonexistent.xml"));
}

TEST(Place, AWrongFileOfNcclIsLeftOutWithAWarning) {
  const ScopedEnv file{{"NCCL_TOPO_FILE", "/nonexistent.xml"}};
  ::testing::internal::CaptureStderr();
  const auto place = describe_place();
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(place.ok()) << place.status().message();
  EXPECT_THAT(logged, HasSubstr("NCCL_TOPO_FILE is left out: /nonexistent.xml"));
}

TEST(Switches, AreThoseOfTheFileOfTheNetwork) {
  const ScopedEnv file{{"WHORL_FABRIC_FILE", source("tests/fixtures/ibnetdiscover.txt")}};
  const auto of = [](const char* host) {
    RankPlace place;
    const Status status = enter_switches(host, place);
    EXPECT_TRUE(status.ok()) << status.message();
    return place;
  };
  const RankPlace first = of("node01"), second = of("node02.cluster"), third = of("node03"),
                  far = of("node05");
  EXPECT_NE(first.leaf, 0U);
  EXPECT_EQ(first.leaf, second.leaf);
  EXPECT_NE(first.leaf, third.leaf);
  EXPECT_EQ(first.pod, third.pod);
  EXPECT_EQ(first.leaf_gb_per_s, 25);
  EXPECT_EQ(first.pod_gb_per_s, 25);
  EXPECT_NE(first.pod, far.pod);
  EXPECT_EQ(of("elsewhere").leaf, 0U);
}

TEST(Switches, AWrongFileIsAnErrorThatNamesTheVariable) {
  const ScopedEnv file{{"WHORL_FABRIC_FILE", "/nonexistent.conf"}};
  RankPlace place;
  EXPECT_THAT(enter_switches("node01", place).message(),
              HasSubstr("WHORL_FABRIC_FILE: /nonexistent.conf"));
}

} // namespace
} // namespace whorl
