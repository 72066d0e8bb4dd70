// Tests of the verbs transport over RDMA devices in memory: whom it reaches, and errors of making
// and losing connections. tests/conformance runs its tests over the same devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/support/scoped_env.h"
#include "tests/unit/transports/verbs_transports.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using verbs::Fabric;
using verbs::PortAddress;

PeerInfo at(const std::vector<PortAddress>& ports, std::uint32_t rank = 0) {
  PeerInfo info;
  info.rank = rank;
  verbs::PortAddresses all;
  std::copy(ports.begin(), ports.end(), all.begin());
  info.addresses[1].size = 40 + sizeof all;
  std::memcpy(info.addresses[1].bytes.data() + 40, &all, sizeof all);
  return info;
}
PortAddress numbered_port(std::uint8_t number) {
  return {.fabric = Fabric::kRoceLinkLocal, .rate = 1000, .number = number};
}
PortAddress port_at(Fabric kind, std::uint8_t subnet, std::uint16_t rate, bool near = true) {
  PortAddress made{.fabric = kind, .rate = rate, .near = near};
  made.gid[7] = subnet;
  return made;
}

/// Two ranks at a port of InfiniBand each, of which that of rank 0, or both, are virtual functions.
class VerbsVirtualFunctions : public VerbsTransportTest,
                              public ::testing::WithParamInterface<bool> {
 protected:
  VerbsVirtualFunctions() : VerbsTransportTest({port("fake0", true), port("fake1", GetParam())}) {}
  static FakeFabric::Device port(const char* name, bool is_virtual) {
    return {.name = name,
            .link_layer = IBV_LINK_LAYER_INFINIBAND,
            .lid = 17,
            .gids = {make_gid(0, IBV_GID_TYPE_IB, "fe80::2")},
            .port_flags = static_cast<std::uint8_t>(is_virtual ? IBV_QPF_GRH_REQUIRED : 0)};
  }
  const ScopedEnv rails_{{"WHORL_IB_RAILS", "1"}};
};

TEST_P(VerbsVirtualFunctions, AreReachedWithGlobalHeaders) {
  const std::uint64_t job = fresh_job();
  EXPECT_EQ(failures_of(run_ranks(
                2, Mode::kThreads,
                [&](RankContext& context) {
                  TransportKind at_own_port = kind();
                  at_own_port.make = [&] {
                    return std::make_unique<VerbsTransport>(
                        VerbsPlace{.number = static_cast<std::uint32_t>(context.rank)}, &host);
                  };
                  Rig rig(context, at_own_port, job, {});
                  const Status connected = rig.connect();
                  ASSERT_TRUE(connected.ok()) << connected.message();
                  const auto ports = dynamic_cast<VerbsTransport&>(rig.transport()).own_ports();
                  ASSERT_EQ(ports.size(), 1U);
                  EXPECT_EQ(ports[0].device->name, context.rank == 0 ? "fake0" : "fake1");
                  context.barrier();
                })),
            "");
}
INSTANTIATE_TEST_SUITE_P(BothOrOne, VerbsVirtualFunctions, ::testing::Bool());

TEST_F(VerbsTransportTest, ReachesPortsOfTheSameNetwork) {
  const VerbsTransport transport({}, &host);
  const auto port = [](Fabric kind, std::uint8_t subnet, std::uint16_t rate) {
    return port_at(kind, subnet, rate);
  };
  const struct {
    PortAddress a, b;
    bool reachable;
  } cases[] = {
      {port(Fabric::kRoceIpv4, 0, 1000), port(Fabric::kRoceIpv4, 0, 250), true},
      {port(Fabric::kRoceIpv4, 0, 0), port(Fabric::kRoceIpv4, 1, 0), true}, // routed
      {port(Fabric::kRoceIpv4, 0, 1), port(Fabric::kRoceIpv6, 0, 1), false},
      {port(Fabric::kRoceIpv4, 0, 1), port(Fabric::kInfiniBand, 0, 1), false},
      {port(Fabric::kInfiniBand, 1, 1), port(Fabric::kInfiniBand, 1, 1), true},
      {port(Fabric::kInfiniBand, 1, 1), port(Fabric::kInfiniBand, 2, 1), false},
      {port(Fabric::kNone, 0, 1), port(Fabric::kNone, 0, 1), false},
  };
  for (const auto& c : cases) {
    const Reach there = transport.reach(at({c.a}), at({c.b}), 1),
                back = transport.reach(at({c.b}), at({c.a}), 1);
    EXPECT_EQ(there.reachable, c.reachable);
    EXPECT_EQ(back.reachable, c.reachable);
    EXPECT_EQ(there.beta_us_per_kib, back.beta_us_per_kib);
  }
  const Reach slower = transport.reach(at({cases[0].a}), at({cases[0].b}), 1);
  EXPECT_DOUBLE_EQ(slower.beta_us_per_kib, 8 * 1024 / 25'000.0);
  const PortAddress one = port_at(Fabric::kRoceIpv4, 0, 250),
                    far = port_at(Fabric::kRoceIpv4, 0, 250, false);
  const Reach two = transport.reach(at({one, one}), at({one, one}), 1);
  EXPECT_DOUBLE_EQ(two.beta_us_per_kib, slower.beta_us_per_kib / 2);
  const Reach spare = transport.reach(at({one, far}), at({one, one}), 1);
  EXPECT_DOUBLE_EQ(spare.beta_us_per_kib, slower.beta_us_per_kib);
  EXPECT_FALSE(transport.reach({}, {}, 1).reachable) << "no address";
  EXPECT_FALSE(transport.reach(at({cases[0].a}), at({cases[0].b}), 9).reachable);
  PeerInfo torn = at({cases[0].a});
  torn.addresses[1].size = kMaxAddressBytes + 1;
  EXPECT_FALSE(transport.reach(torn, at({cases[0].b}), 1).reachable);
}

TEST_F(VerbsTransportTest, LeavesUnwantedDevicesAlone) {
  VerbsTransport wanted({}, &host);
  const auto address = wanted.listen({});
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_FALSE(address->empty());
  VerbsTransport unwanted({.unwanted = "they are somebody's"}, &host);
  const auto none = unwanted.listen({});
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_TRUE(none->empty()) << "other ranks would connect to it";
  EXPECT_EQ(unwanted.absence(), "they are somebody's");
}

TEST(VerbsRailsBetween, PairPortsAlikeOnBothSides) {
  const PortAddress a = port_at(Fabric::kInfiniBand, 1, 1000),
                    b = port_at(Fabric::kInfiniBand, 2, 1000),
                    far = port_at(Fabric::kInfiniBand, 1, 1000, false),
                    ethernet = port_at(Fabric::kRoceIpv4, 0, 1000);
  struct Pair {
    int own, peers;
    bool spare;
  };
  const struct {
    std::vector<PortAddress> low, high;
    std::vector<Pair> rails;
  } cases[] = {
      {{a}, {a}, {{0, 0, false}}},
      {{a, b}, {b, a}, {{0, 1, false}, {1, 0, false}}},
      {{a, a}, {a}, {{0, 0, false}}},
      {{a, b}, {a, ethernet}, {{0, 0, false}}},
      {{a}, {b}, {}},
      {{a, far}, {a, a}, {{0, 0, false}, {1, 1, true}}},
      {{b, far}, {a}, {{1, 0, false}}}, // a far one is better than none
      {{far, a}, {b, a}, {{0, 1, false}}},
      {{numbered_port(0), numbered_port(1)},
       {numbered_port(1), numbered_port(0)},
       {{0, 1, false}, {1, 0, false}}},
      {{numbered_port(0), numbered_port(1)}, {numbered_port(1)}, {{1, 0, false}}},
      {{numbered_port(0)}, {numbered_port(1)}, {{0, 0, false}}},
  };
  for (const auto& c : cases) {
    const auto there = verbs::rails_between(at(c.low, 1), at(c.high, 2), 1),
               back = verbs::rails_between(at(c.high, 2), at(c.low, 1), 1);
    ASSERT_EQ(there.size(), c.rails.size());
    ASSERT_EQ(back.size(), c.rails.size());
    for (std::size_t i = 0; i < c.rails.size(); ++i) {
      EXPECT_EQ(there[i].own, c.rails[i].own);
      EXPECT_EQ(there[i].peers, c.rails[i].peers);
      EXPECT_EQ(back[i].own, c.rails[i].peers);
      EXPECT_EQ(back[i].peers, c.rails[i].own);
      EXPECT_EQ(there[i].spare, c.rails[i].spare);
      EXPECT_EQ(back[i].spare, c.rails[i].spare);
    }
  }
}

TEST(VerbsChoosePorts, TakesNearOnesInTurnAndOthersAsSpares) {
  FakeFabric fabric(
      {{.name = "a", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")}},
       {.name = "b", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2")}},
       {.name = "c", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.3")}}});
  VerbsHost host(fabric.api());
  VerbsHost::Hindrances why;
  const auto ports = host.ports({}, &why);
  const auto choose = [&](std::uint32_t number, std::vector<std::string> near, std::size_t most) {
    std::string text;
    for (const VerbsPort& port :
         verbs::choose_ports(ports, {.number = number, .nearest = [near] { return near; }}, most)) {
      text += port.device->name + (port.address.near ? "" : "?");
    }
    return text;
  };
  EXPECT_EQ(choose(0, {}, 4), "abc");
  EXPECT_EQ(choose(1, {}, 2), "bc");
  EXPECT_EQ(choose(2, {}, 2), "ca");
  EXPECT_EQ(choose(0, {"b"}, 2), "ba?");
  EXPECT_EQ(choose(1, {"b"}, 2), "bc?") << "spares in turn as well";
  EXPECT_EQ(choose(1, {"a", "c"}, 3), "cab?");
  EXPECT_EQ(choose(0, {"b"}, 1), "b");
  EXPECT_EQ(choose(0, {"unknown"}, 1), "a");
}

TEST_F(VerbsTransportTest, SaysWhyItHasNoAddress) {
  fabric.device(0).state = IBV_PORT_DOWN;
  VerbsTransport transport({}, &host);
  const auto address = transport.listen({});
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_TRUE(address->empty());
  EXPECT_EQ(transport.absence(), "fake0:1 has no link");
}

TEST_F(VerbsTransportTest, AQueueThatCannotBeConnectedIsSaid) {
  fabric.refuse_state(IBV_QPS_RTR, EHOSTUNREACH);
  on_ranks([](Rig& rig, const Status& connected, RankContext& context) {
    EXPECT_THAT(connected.message(),
                AllOf(HasSubstr("rank " + std::to_string(1 - context.rank) + " (host testhost"),
                      HasSubstr("WHORL_IB_GID_INDEX")));
    EXPECT_FALSE(rig.comm_error().is_set());
  });
}

class MuchMemory final : public System {
 public:
  std::size_t locked_memory() noexcept override { return SIZE_MAX; }
};

TEST_F(VerbsTransportTest, MemoryThatCannotBeRegisteredIsSaid) {
  MuchMemory system;
  const ScopedSystem scoped(&system);
  fabric.device(0).memory_bytes = 4096;
  on_ranks([](Rig&, const Status& connected, RankContext&) {
    EXPECT_THAT(connected.message(), HasSubstr("ulimit -l unlimited"));
  });
}

TEST_F(VerbsTransportTest, AFailedConnectionNamesThePeerAndTheReason) {
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    context.barrier();
    if (context.rank == 0) {
      fabric.fail_write(1, {IBV_WC_RETRY_EXC_ERR, 0x81});
      EXPECT_TRUE(rig.send(1, pattern(100, 1), {}));
    }
    EXPECT_FALSE(rig.receive(1 - context.rank));
    const std::string text = rig.comm_error().status().message();
    if (context.rank == 0) {
      EXPECT_THAT(text, AllOf(HasSubstr("the connection of rank 0 to rank 1 (host testhost"),
                              HasSubstr("does not answer"), HasSubstr("0x81")));
      rig.transport().notify_peers(rig.comm_error().status());
    } else {
      EXPECT_THAT(text, HasSubstr("does not answer"));
    }
  });
}

TEST_F(VerbsTransportTest, RequestsToARankThatHasLeftAreNoFailure) {
  on_ranks([](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    if (context.rank == 1) {
      EXPECT_TRUE(rig.send(0, pattern(100, 1), {}));
      EXPECT_TRUE(matches(rig.receive(0), 10, 2));
      rig.destroy();
      context.barrier();
      context.barrier();
      return;
    }
    EXPECT_TRUE(rig.send(1, pattern(10, 2), {}));
    context.barrier();
    EXPECT_TRUE(rig.flush()) << "a request for a completion, to a queue that is gone";
    EXPECT_TRUE(matches(rig.receive(1), 100, 1));
    rig.to(1).release(); // a credit
    EXPECT_EQ(rig.wait([] { return false; }, 50'000'000), WaitResult::kTimedOut);
    EXPECT_FALSE(rig.comm_error().is_set()) << rig.comm_error().status().message();
    context.barrier();
  });
}

/// System with a clock that a test sets.
class SetClock final : public System {
 public:
  std::uint64_t now_ns() noexcept override { return now + System::now_ns(); }
  std::atomic<std::uint64_t> now{0};
};

TEST_F(VerbsTransportTest, APortWithoutLinkEndsLongWaits) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  SetClock system;
  const ScopedSystem scoped(&system);
  on_ranks([&](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    context.barrier();
    if (context.rank == 0) {
      const auto look = [&](std::uint64_t waited_ns) {
        system.now += kSecondNs;
        rig.transport().poll_failures(waited_ns);
        return rig.comm_error().is_set();
      };
      for (int i = 0; i < 5; ++i) EXPECT_FALSE(look(5 * kSecondNs));
      fabric.device(0).state = IBV_PORT_DOWN;
      for (int i = 0; i < 5; ++i) EXPECT_FALSE(look(kSecondNs / 2)) << "a short wait";
      EXPECT_FALSE(look(2 * kSecondNs));
      fabric.device(0).state = IBV_PORT_ACTIVE;
      EXPECT_FALSE(look(3 * kSecondNs)) << "only for a moment";
      fabric.device(0).state = IBV_PORT_DOWN;
      EXPECT_FALSE(look(3 * kSecondNs));
      system.now += 3 * kSecondNs; // in which no rank waits
      EXPECT_FALSE(look(4 * kSecondNs)) << "the look long ago says nothing";
      EXPECT_FALSE(look(5 * kSecondNs));
      EXPECT_TRUE(look(6 * kSecondNs));
      EXPECT_THAT(rig.comm_error().status().message(),
                  HasSubstr("fake0:1 of rank 0 has lost its link"));
    }
    context.barrier();
  });
}

TEST_F(VerbsTransportTest, EverythingIsGivenBack) {
  on_ranks([](Rig& rig, const Status& connected, RankContext&) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    rig.destroy();
  });
  EXPECT_EQ(fabric.objects(), 2) << "the device and its domain stay";
}

} // namespace
} // namespace whorl::test
