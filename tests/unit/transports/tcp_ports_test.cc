// Tests which ports are open, and that connections of strangers disturb no rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "net/mesh.h"
#include "tests/support/identity.h"
#include "tests/support/intruders.h"
#include "transports/tcp/transport.h"

namespace whorl {
namespace {

using test::FewFiles;
using test::with_idle_connections;

const SocketAddress kLoopback = SocketAddress::ipv4({127, 0, 0, 1}, 0);

MeshPlan plan_of(int rank, const Identity& identity) {
  MeshPlan plan;
  plan.rank = rank;
  plan.identity = &identity;
  plan.deadline_ns = sys().now_ns() + 20'000'000'000;
  return plan;
}

TEST(Mesh, IdleConnectionsKeepNobodyOut) {
  const Result<Fd> listener = listen_at(kLoopback);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const SocketAddress address = *bound_address(listener->get());
  const Identity identity = test::identity_of(0, 3);
  const FewFiles few(128); // the intruders' connections could take all descriptors
  with_idle_connections(address, [&] {
    std::thread accepting([&] {
      MeshPlan plan = plan_of(0, identity);
      plan.expected.push_back({1, SocketRole::kData, 0});
      const auto links = connect_mesh(std::span(&*listener, 1), plan);
      EXPECT_TRUE(links.ok()) << links.status().message();
    });
    MeshPlan plan = plan_of(1, identity);
    plan.targets.push_back({0, SocketRole::kData, 0, {address}});
    const auto links = connect_mesh({}, plan);
    EXPECT_TRUE(links.ok()) << links.status().message();
    accepting.join();
  });
}

TEST(Mesh, MayHaveMoreAddressesThanThereMayBeFiles) {
  const Result<Fd> listener = listen_at(kLoopback);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const SocketAddress address = *bound_address(listener->get());
  const Identity identity = test::identity_of(0, 3);
  constexpr std::uint32_t kConnections = 20;
  const FewFiles few(128);
  std::thread accepting([&] {
    MeshPlan plan = plan_of(0, identity);
    for (std::uint32_t i = 0; i < kConnections; ++i) {
      plan.expected.push_back({1, SocketRole::kData, i});
    }
    const auto links = connect_mesh(std::span(&*listener, 1), plan);
    EXPECT_TRUE(links.ok()) << links.status().message();
  });
  MeshPlan plan = plan_of(1, identity);
  for (std::uint32_t i = 0; i < kConnections; ++i) {
    plan.targets.push_back({0, SocketRole::kData, i, std::vector<SocketAddress>(9, address)});
  }
  const auto links = connect_mesh({}, plan);
  EXPECT_TRUE(links.ok()) << links.status().message();
  accepting.join();
}

/// Rank of a TCP transport, with the addresses in its PeerInfo.
struct Rank {
  Rank() {
    const auto info = transport.listen({});
    EXPECT_TRUE(info.ok()) << info.status().message();
    bytes = *info;
    ByteReader in(bytes);
    for (int count = in.get<std::uint8_t>(); count > 0; --count) {
      const auto field = in.get_bytes(SocketAddress::kEncodedBytes);
      addresses.push_back(SocketAddress::decode(field.first<SocketAddress::kEncodedBytes>()));
    }
  }
  /// Returns those of the addresses on which a socket listens.
  std::vector<std::string> open() const {
    std::vector<std::string> out;
    for (const SocketAddress& address : addresses) {
      const Fd probe(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(probe.get(), address.data(), address.size()) == 0) {
        out.push_back(address.text());
      }
    }
    return out;
  }
  std::vector<std::string> some(bool loopback) const {
    std::vector<std::string> out;
    for (const SocketAddress& address : addresses) {
      if (address.is_loopback() == loopback) out.push_back(address.text());
    }
    return out;
  }
  CommError comm_error;
  Membership membership;
  TcpTransport transport; // uses both until its end
  std::vector<std::byte> bytes;
  std::vector<SocketAddress> addresses;
};

TEST(TcpPorts, AreTakenButClosedBeforePeersAreKnown) {
  const Rank rank;
  ASSERT_FALSE(rank.addresses.empty());
  EXPECT_THAT(rank.open(), testing::IsEmpty());
  const Result<Fd> thief = bind_at(rank.addresses.front());
  ASSERT_FALSE(thief.ok());
  EXPECT_THAT(thief.status().message(), testing::HasSubstr("Address already in use"));
}

/// Returns the open ports of rank 0 of 2 while it waits for rank 1, which is on this host or on
/// another.
std::vector<std::string> open_for(Rank& rank, bool same_host) {
  Membership& membership = rank.membership;
  membership.rank = 0;
  membership.nranks = 2;
  membership.timeout_ns = 20'000'000'000;
  membership.comm_error = &rank.comm_error;
  membership.peers.resize(2);
  membership.peers[1].rank = 1;
  membership.peers[1].host_key = same_host ? 0 : 1;
  for (PeerInfo& info : membership.peers) {
    info.addresses[0].size = static_cast<std::uint32_t>(rank.bytes.size());
    std::memcpy(info.addresses[0].bytes.data(), rank.bytes.data(), rank.bytes.size());
  }
  std::thread connecting([&] {
    const int peer = 1;
    EXPECT_FALSE(rank.transport.connect(membership, {&peer, 1}, 0).ok());
  });
  std::vector<std::string> open;
  for (int i = 0; i < 5000 && open.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    open = rank.open();
  }
  open = rank.open(); // read again: all ports are open by now
  rank.comm_error.set(Status::error(Code::kInvalidUsage, "enough"));
  connecting.join();
  return open;
}

TEST(TcpPorts, OpenOnLoopbackForPeersOfThisHost) {
  Rank rank;
  EXPECT_EQ(rank.some(true), open_for(rank, true));
  EXPECT_THAT(rank.open(), testing::IsEmpty()) << "closed after connect()";
}

TEST(TcpPorts, OpenElsewhereForPeersOfOtherHosts) {
  Rank rank;
  if (rank.some(false).empty()) GTEST_SKIP() << "this host has no address but loopback";
  EXPECT_EQ(rank.some(false), open_for(rank, false));
}

} // namespace
} // namespace whorl
