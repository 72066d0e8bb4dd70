// Tests of the choice of RDMA ports: devices in memory, filters, GIDs, and the reasons why there is
// none.
#include "transports/verbs/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system.h"
#include "tests/support/fake_verbs/fabric.h"
#include "tests/support/scoped_env.h"

namespace whorl {
namespace {

using test::FakeFabric;
using test::make_gid;
using ::testing::HasSubstr;
using verbs::Fabric;

FakeFabric::Device roce(const std::string& name) {
  return {.name = name,
          .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V1, "fe80::1"),
                   make_gid(1, IBV_GID_TYPE_ROCE_V2, "fe80::1"),
                   make_gid(2, IBV_GID_TYPE_ROCE_V1, "::ffff:10.0.0.1"),
                   make_gid(3, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1"),
                   make_gid(5, IBV_GID_TYPE_ROCE_V2, "2001:db8::1")}};
}

/// Returns the names of ports that a fabric has under settings.
std::vector<std::string> names_of(VerbsHost& host, const VerbsSettings& settings,
                                  VerbsHost::Hindrances* why) {
  std::vector<std::string> names;
  for (const VerbsPort& port : host.ports(settings, why)) names.push_back(port.device->name);
  return names;
}

TEST(VerbsHost, TakesTheBestGid) {
  FakeFabric fabric({roce("mlx5_0")});
  VerbsHost host(fabric.api());
  const struct {
    int asked;
    Fabric fabric;
    int index;
  } cases[] = {{-1, Fabric::kRoceIpv4, 3},
               {1, Fabric::kRoceLinkLocal, 1},
               {5, Fabric::kRoceIpv6, 5},
               {2, Fabric::kRoceV1, 2}};
  for (const auto& c : cases) {
    VerbsSettings settings;
    settings.gid_index = c.asked;
    VerbsHost::Hindrances why;
    const auto ports = host.ports(settings, &why);
    ASSERT_EQ(ports.size(), 1U) << why.why;
    EXPECT_EQ(ports[0].address.fabric, c.fabric);
    EXPECT_EQ(ports[0].gid_index, c.index);
    EXPECT_EQ(ports[0].address.rate, 1000);
  }
  VerbsSettings settings;
  settings.gid_index = 4;
  VerbsHost::Hindrances why;
  EXPECT_TRUE(host.ports(settings, &why).empty());
  EXPECT_EQ(why.why, "mlx5_0:1 has no GID with index 4");
}

TEST(VerbsHost, KnowsInfiniBandByItsLid) {
  FakeFabric fabric({{.name = "mlx5_0",
                      .link_layer = IBV_LINK_LAYER_INFINIBAND,
                      .lid = 17,
                      .gids = {make_gid(0, IBV_GID_TYPE_IB, "fe80::2")}}});
  VerbsHost host(fabric.api());
  VerbsHost::Hindrances why;
  const auto ports = host.ports({}, &why);
  ASSERT_EQ(ports.size(), 1U) << why.why;
  EXPECT_EQ(ports[0].address.fabric, Fabric::kInfiniBand);
  EXPECT_EQ(ports[0].address.lid, 17);
}

TEST(VerbsHost, SaysWhatHindersEachDevice) {
  FakeFabric::Device down = roce("mlx5_down"), bare = roce("mlx5_bare"), mine = roce("mlx5_mine"),
                     iwarp = roce("cxgb4_0");
  down.state = IBV_PORT_DOWN;
  bare.gids.clear();
  mine.open_error = EACCES;
  iwarp.kind = IBV_TRANSPORT_IWARP;
  FakeFabric fabric({down, bare, mine, iwarp});
  VerbsHost host(fabric.api());
  VerbsHost::Hindrances why;
  EXPECT_TRUE(host.ports({}, &why).empty());
  EXPECT_THAT(why.why, HasSubstr("mlx5_down:1 has no link"));
  EXPECT_THAT(why.why, HasSubstr("mlx5_bare:1 has no GID"));
  EXPECT_THAT(why.why, HasSubstr("mlx5_mine cannot be opened: Permission denied"));
  EXPECT_THAT(why.why, HasSubstr("/dev/infiniband"));
  EXPECT_TRUE(why.fault) << "one can be mended";
  EXPECT_THAT(why.why, HasSubstr("cxgb4_0 is neither InfiniBand nor RoCE"));
}

TEST(VerbsHost, NumbersPortsWithAndWithoutALink) {
  FakeFabric fabric(
      {{.name = "a",
        .state = IBV_PORT_DOWN,
        .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")}},
       {.name = "b", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2")}}});
  VerbsHost host(fabric.api());
  VerbsHost::Hindrances why;
  const auto ports = host.ports({}, &why);
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].address.number, 1) << "the same as where both have one";
}

TEST(VerbsHost, HasNoDeviceOrIsToldToUseNone) {
  FakeFabric none({});
  VerbsHost::Hindrances why;
  EXPECT_TRUE(VerbsHost(none.api()).ports({}, &why).empty());
  EXPECT_EQ(why.why, "this host has no RDMA device");
  FakeFabric one({roce("mlx5_0")});
  VerbsSettings settings;
  settings.disabled = true;
  EXPECT_TRUE(VerbsHost(one.api()).ports(settings, &why).empty());
  EXPECT_THAT(why.why, HasSubstr("IB_DISABLE"));
  EXPECT_FALSE(why.fault);
}

TEST(VerbsHost, ClosesWhatItHasOpened) {
  FakeFabric fabric({roce("mlx5_0"), roce("mlx5_1")});
  {
    VerbsHost host(fabric.api());
    VerbsHost::Hindrances why;
    EXPECT_EQ(host.ports({}, &why).size(), 2U);
    EXPECT_EQ(host.ports({}, &why).size(), 2U);
    EXPECT_EQ(fabric.objects(), 4) << "two devices with one domain each";
  }
  EXPECT_EQ(fabric.objects(), 0);
}

class LittleMemory final : public System {
 public:
  std::size_t locked_memory() noexcept override { return 8 << 20; }
};

TEST(VerbsHost, DoesWithoutDevicesWhereMemoryCannotBeLocked) {
  LittleMemory system;
  const ScopedSystem scoped(&system);
  FakeFabric::Device limited = roce("mlx5_0");
  limited.memory_bytes = 8 << 20;
  FakeFabric fabric({limited, roce("mlx5_1")}); // the second one stands for a privileged process
  VerbsHost host(fabric.api());
  VerbsHost::Hindrances why;
  EXPECT_EQ(names_of(host, {}, &why), std::vector<std::string>{"mlx5_1"});
  EXPECT_THAT(why.why, HasSubstr("mlx5_0"));
  EXPECT_THAT(why.why, HasSubstr("ulimit -l unlimited"));
  EXPECT_TRUE(why.fault);
}

TEST(PortFilter, ReadsListsAsNcclDoes) {
  const struct {
    const char* text;
    std::vector<std::string> admitted; ///< of mlx5_0, mlx5_1, mlx5_10, bnxt_0, port 1
  } cases[] = {{"", {"mlx5_0", "mlx5_1", "mlx5_10", "bnxt_0"}},
               {"mlx5", {"mlx5_0", "mlx5_1", "mlx5_10"}},
               {"mlx5_1", {"mlx5_1", "mlx5_10"}},
               {"=mlx5_1", {"mlx5_1"}},
               {"^mlx5_1", {"mlx5_0", "bnxt_0"}},
               {"^=mlx5_1,mlx5_0", {"mlx5_10", "bnxt_0"}},
               {"mlx5_0:1,bnxt", {"mlx5_0", "bnxt_0"}},
               {"mlx5_0:2,,bnxt,", {"bnxt_0"}},
               {"other", {}}};
  for (const auto& c : cases) {
    const auto filter = PortFilter::parse(c.text);
    ASSERT_TRUE(filter.ok()) << c.text;
    std::vector<std::string> admitted;
    for (const char* const name : {"mlx5_0", "mlx5_1", "mlx5_10", "bnxt_0"}) {
      if (filter->admits(name, 1)) admitted.push_back(name);
    }
    EXPECT_EQ(admitted, c.admitted) << c.text;
  }
  for (const char* const bad : {"mlx5_0:", "mlx5_0:0", "mlx5_0:x", "mlx5_0:256", "a:1b"}) {
    const auto filter = PortFilter::parse(bad);
    ASSERT_FALSE(filter.ok()) << bad;
    EXPECT_THAT(filter.status().message(), HasSubstr(bad));
  }
}

TEST(VerbsSettings, TakesNcclsNames) {
  const test::ScopedEnv env{
      {"NCCL_IB_RETRY_CNT", "7"}, {"NCCL_IB_TC", "106"}, {"WHORL_IB_SL", "3"}, {"NCCL_IB_SL", "4"}};
  const auto settings = VerbsSettings::from_environment();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->retry_count, 6) << "7 is for ever";
  EXPECT_EQ(settings->traffic_class, 106);
  EXPECT_EQ(settings->service_level, 3);
  const test::ScopedEnv wrong{{"NCCL_IB_TC", "1000"}};
  const auto bad = VerbsSettings::from_environment();
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("NCCL_IB_TC=\"1000\""));
}

} // namespace
} // namespace whorl
