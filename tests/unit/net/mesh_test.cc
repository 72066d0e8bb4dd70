#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "net/mesh.h"
#include "tests/support/identity.h"

namespace whorl {
namespace {

using test::identity_of;

const SocketAddress kLoopback = SocketAddress::ipv4({127, 0, 0, 1}, 0);

struct Listening {
  Fd socket;
  SocketAddress address;
};

Listening listen_on(const SocketAddress& address = kLoopback) {
  Result<Fd> socket = listen_at(address);
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  Listening out;
  out.socket = *std::move(socket);
  out.address = *bound_address(out.socket.get());
  return out;
}

std::uint64_t in_seconds(double seconds) {
  return sys().now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
}

/// Port of this host on which nothing listens, and that no other socket gets meanwhile.
struct ClosedPort {
  ClosedPort() {
    EXPECT_EQ(0, sys().setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1));
    EXPECT_EQ(0, sys().bind(socket.get(), kLoopback.data(), kLoopback.size()));
    address = *bound_address(socket.get());
  }
  Fd socket{sys().socket(AF_INET, SOCK_STREAM)};
  SocketAddress address;
};

Fd connect_raw(const SocketAddress& address) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(0, ::connect(fd.get(), address.data(), address.size()));
  return fd;
}

/// Connects all ranks to each other, `lanes` times for each pair; checks that each link leads to
/// the rank and channel that it claims.
void full_mesh(int nranks, std::uint32_t lanes, std::vector<Listening> listening) {
  const Identity identity = identity_of(1, 2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      MeshPlan plan;
      plan.rank = rank;
      plan.identity = &identity;
      plan.deadline_ns = in_seconds(20);
      for (int peer = 0; peer < nranks; ++peer) {
        for (std::uint32_t lane = 0; lane < lanes; ++lane) {
          if (peer < rank) {
            plan.targets.push_back({peer,
                                    SocketRole::kData,
                                    lane,
                                    {listening[static_cast<std::size_t>(peer)].address}});
          } else if (peer > rank) {
            plan.expected.push_back({peer, SocketRole::kData, lane});
          }
        }
      }
      Result<std::vector<MeshLink>> links =
          connect_mesh(std::span(&listening[static_cast<std::size_t>(rank)].socket, 1), plan);
      ASSERT_TRUE(links.ok()) << links.status().message();
      ASSERT_EQ(static_cast<std::size_t>(nranks - 1) * lanes, links->size());
      for (const MeshLink& link : *links) {
        const std::uint32_t mine[2] = {static_cast<std::uint32_t>(rank), link.channel};
        ASSERT_EQ(static_cast<ssize_t>(sizeof mine),
                  ::send(link.socket.get(), mine, sizeof mine, MSG_NOSIGNAL));
      }
      for (const MeshLink& link : *links) {
        std::uint32_t theirs[2] = {};
        pollfd ready{link.socket.get(), POLLIN, 0};
        ASSERT_EQ(1, ::poll(&ready, 1, 20'000));
        ASSERT_EQ(static_cast<ssize_t>(sizeof theirs),
                  ::recv(link.socket.get(), theirs, sizeof theirs, MSG_WAITALL));
        EXPECT_EQ(static_cast<std::uint32_t>(link.rank), theirs[0]);
        EXPECT_EQ(link.channel, theirs[1]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mesh, ConnectsEightRanks) {
  std::vector<Listening> listening;
  for (int rank = 0; rank < 8; ++rank) listening.push_back(listen_on());
  full_mesh(8, 3, std::move(listening));
}

TEST(Mesh, ConnectsOverUnixSockets) {
  std::vector<Listening> listening;
  for (int rank = 0; rank < 4; ++rank) {
    listening.push_back(listen_on(
        SocketAddress::unix_name("wm" + std::to_string(::getpid()) + "." + std::to_string(rank))));
  }
  full_mesh(4, 2, std::move(listening));
}

TEST(Mesh, StrangersDelayNobody) {
  std::vector<Listening> listening;
  for (int rank = 0; rank < 4; ++rank) listening.push_back(listen_on());
  std::vector<Fd> strangers;
  for (const Listening& target : listening) {
    for (int i = 0; i < 100; ++i) strangers.push_back(connect_raw(target.address)); // silent
    strangers.push_back(connect_raw(target.address));
    ASSERT_EQ(5, ::send(strangers.back().get(), "GET /", 5, MSG_NOSIGNAL));
  }
  const auto start = std::chrono::steady_clock::now();
  full_mesh(4, 1, std::move(listening));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

/// Waits as a rank to which three others connect: one is another program, one hangs up within its
/// hello, one is silent. Ends the process.
[[noreturn]] void wait_for_nobody() {
  ::setenv("WHORL_LOG", "info", 1);
  const Identity identity = identity_of(1, 2);
  const Listening mine = listen_on();
  const Fd other = connect_raw(mine.address), silent = connect_raw(mine.address);
  ::send(other.get(), "GET /", 5, MSG_NOSIGNAL);
  ::send(connect_raw(mine.address).get(), "whrh", 4, MSG_NOSIGNAL);
  MeshPlan plan;
  plan.rank = 4;
  plan.identity = &identity;
  plan.expected.push_back({5, SocketRole::kData, 0});
  plan.deadline_ns = in_seconds(0.3);
  static_cast<void>(connect_mesh(std::span(&mine.socket, 1), plan));
  ::_exit(0);
}

TEST(MeshDeathTest, TheLogTellsOfThoseTurnedAwayAndNotOfThoseWhoHangUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // another process reads WHORL_LOG anew
  EXPECT_EXIT(wait_for_nobody(), ::testing::ExitedWithCode(0),
              ::testing::AllOf(::testing::HasSubstr("rank 4 turned a connection away: what answers "
                                                    "does not speak whorl's protocol"),
                               ::testing::Not(::testing::HasSubstr("closed by the other side"))));
}

TEST(Mesh, TriesTheNextAddressAndWaitsForALateListener) {
  const Identity identity = identity_of(1, 2);
  const ClosedPort refusing;
  const ClosedPort reserved;
  const SocketAddress later = reserved.address;
  const Listening silent = listen_on(); // the kernel accepts, but no thread answers
  std::thread acceptor([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    Result<Fd> socket = listen_at(later);
    ASSERT_TRUE(socket.ok()) << socket.status().message();
    MeshPlan plan;
    plan.rank = 1;
    plan.identity = &identity;
    plan.expected.push_back({0, SocketRole::kControl, 0});
    plan.deadline_ns = in_seconds(20);
    const Result<std::vector<MeshLink>> links = connect_mesh(std::span(&*socket, 1), plan);
    EXPECT_TRUE(links.ok()) << links.status().message();
  });
  MeshPlan plan;
  plan.rank = 0;
  plan.identity = &identity;
  plan.targets.push_back({1, SocketRole::kControl, 0, {refusing.address, silent.address, later}});
  plan.deadline_ns = in_seconds(20);
  const Result<std::vector<MeshLink>> links = connect_mesh({}, plan);
  acceptor.join();
  ASSERT_TRUE(links.ok()) << links.status().message();
  EXPECT_EQ(later.text(), links->front().via);
}

TEST(Mesh, NamesWhoIsMissingAndWhereItWasLookedFor) {
  const Identity identity = identity_of(1, 2);
  const Listening mine = listen_on();
  const Listening silent = listen_on();
  const ClosedPort refusing;
  const SocketAddress closed = refusing.address;
  MeshPlan plan;
  plan.rank = 3;
  plan.identity = &identity;
  for (std::uint32_t channel = 0; channel < 12; ++channel) {
    plan.targets.push_back({1, SocketRole::kData, channel, {closed, silent.address}});
    plan.expected.push_back({5, SocketRole::kData, channel});
  }
  plan.describe = [](int rank) { return "rank " + std::to_string(rank) + " (host h)"; };
  plan.deadline_ns = in_seconds(0.3);
  const Result<std::vector<MeshLink>> links = connect_mesh(std::span(&mine.socket, 1), plan);
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(Code::kRemoteError, links.status().code());
  const std::string& text = links.status().message();
  for (const std::string& part :
       {std::string("rank 1 (host h) could not be reached"),
        closed.text() + " (Connection refused)",
        silent.address.text() + " (connected, but no answer to the handshake)",
        std::string("rank 5 (host h) has not connected")}) {
    const std::size_t at = text.find(part);
    ASSERT_NE(std::string::npos, at) << part << " is not in: " << text;
    EXPECT_EQ(std::string::npos, text.find(part, at + 1)) << part << " is repeated in: " << text;
  }
}

/// A system that counts attempts to connect.
class CountingConnects final : public System {
 public:
  int connect(int fd, const sockaddr* address, socklen_t size) noexcept override {
    ++connects;
    return System::connect(fd, address, size);
  }
  int connects = 0;
};

/// The kernel drops connections where the queue is full, as a host does that is not up yet. By
/// itself it would repeat the first one after 1, 3, 7, 15 and 31 s.
TEST(MeshFull, ATargetThatDoesNotAnswerIsAskedAgainSoon) {
  const Identity identity = identity_of(1, 2);
  Fd dropping(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(0, ::bind(dropping.get(), kLoopback.data(), kLoopback.size()));
  ASSERT_EQ(0, ::listen(dropping.get(), 0));
  const SocketAddress address = *bound_address(dropping.get());
  const Fd only = connect_raw(address);
  MeshPlan plan;
  plan.identity = &identity;
  plan.targets.push_back({1, SocketRole::kData, 0, {address}});
  plan.deadline_ns = in_seconds(4);
  CountingConnects system;
  const ScopedSystem scope(&system);
  const Result<std::vector<MeshLink>> links = connect_mesh({}, plan);
  ASSERT_FALSE(links.ok());
  EXPECT_GE(system.connects, 2);
  EXPECT_LE(system.connects, 4);
  EXPECT_NE(std::string::npos, links.status().message().find("Connection timed out"))
      << links.status().message();
}

/// The side that connects has tried addresses; the other one has only waited.
TEST(Mesh, WhoOnlyWaitsForOthersHearsWhyTheyDidNotCome) {
  const Identity identity = identity_of(1, 2);
  const Listening mine = listen_on();
  MeshPlan plan;
  plan.identity = &identity;
  plan.expected.push_back({1, SocketRole::kData, 0});
  plan.deadline_ns = in_seconds(0.1);
  const std::uint64_t told_ns = in_seconds(0.2);
  plan.check = [told_ns] {
    return sys().now_ns() < told_ns ? Status() : Status::error(Code::kRemoteError, "the reason");
  };
  EXPECT_EQ("the reason", connect_mesh(std::span(&mine.socket, 1), plan).status().message());
  plan.deadline_ns = in_seconds(0.1);
  plan.check = [] { return Status(); };
  const std::string text = connect_mesh(std::span(&mine.socket, 1), plan).status().message();
  EXPECT_NE(std::string::npos, text.find("rank 1 has not connected")) << text;
}

/// Returns the error of a mesh that cannot reach its only target, at a unix socket.
std::string error_at_a_unix_socket(SocketRole role) {
  const Identity identity = identity_of(1, 2);
  MeshPlan plan;
  plan.identity = &identity;
  plan.targets.push_back({1, role, 0, {SocketAddress::unix_name("nobody listens")}});
  plan.deadline_ns = in_seconds(0.05);
  return connect_mesh({}, plan).status().message();
}

TEST(Mesh, OfUnixSocketsSaysThatTheyLeadToNoOtherHost) {
  const std::string memory = error_at_a_unix_socket(SocketRole::kShm);
  EXPECT_NE(std::string::npos, memory.find("WHORL_HOST_ID")) << memory;
  const std::string meeting = error_at_a_unix_socket(SocketRole::kBootstrap);
  EXPECT_NE(std::string::npos, meeting.find("network namespace")) << meeting;
  for (const std::string& text : {memory, meeting}) {
    EXPECT_EQ(std::string::npos, text.find("firewall")) << text;
  }
}

TEST(Mesh, AWrongSecretFailsAtOnce) {
  const Identity right = identity_of(1, 2);
  const Identity wrong = identity_of(1, 3);
  const Listening mine = listen_on();
  CommError stop;
  std::thread acceptor([&] {
    MeshPlan plan;
    plan.rank = 1;
    plan.identity = &right;
    plan.expected.push_back({0, SocketRole::kData, 0});
    plan.deadline_ns = in_seconds(20);
    plan.comm_error = &stop;
    const Result<std::vector<MeshLink>> links = connect_mesh(std::span(&mine.socket, 1), plan);
    ASSERT_FALSE(links.ok());
    EXPECT_EQ("stop", links.status().message()); // another connection's failure is not its own
  });
  MeshPlan plan;
  plan.rank = 0;
  plan.identity = &wrong;
  plan.targets.push_back({1, SocketRole::kData, 0, {mine.address}});
  plan.deadline_ns = in_seconds(20);
  const Result<std::vector<MeshLink>> links = connect_mesh({}, plan);
  stop.set(Status::error(Code::kInternalError, "stop"));
  acceptor.join();
  ASSERT_FALSE(links.ok());
  EXPECT_NE(std::string::npos, links.status().message().find("wrong secret"));
}

TEST(Mesh, NothingToDoIsDone) {
  const Identity identity = identity_of(1, 2);
  MeshPlan plan;
  plan.identity = &identity;
  const Result<std::vector<MeshLink>> links = connect_mesh({}, plan);
  ASSERT_TRUE(links.ok());
  EXPECT_TRUE(links->empty());
}

TEST(Address, ParsesAndPrints) {
  EXPECT_EQ("127.0.0.1:80", parse_address("127.0.0.1:80")->front().text());
  EXPECT_EQ("127.0.0.1:80", parse_address("localhost:80")->front().text());
  EXPECT_EQ("[::1]:65535", parse_address("[::1]:65535")->front().text());
  EXPECT_TRUE(parse_address("127.0.0.1:80")->front().is_loopback());
  for (const char* bad :
       {"", ":", "a", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:8x", "::1:80", "[::1]", "[]:80", "1.2.3.4:-1"}) {
    const Result<std::vector<SocketAddress>> parsed = parse_address(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(Code::kInvalidArgument, parsed.status().code());
  }
}

TEST(Address, OfALinkIsRefusedWithTheReason) {
  for (const char* local : {"[fe80::1]:80", "[fe80::1%lo]:80"}) {
    const Result<std::vector<SocketAddress>> parsed = parse_address(local);
    ASSERT_FALSE(parsed.ok()) << local;
    EXPECT_NE(std::string::npos, parsed.status().message().find("link-local address of IPv6"));
  }
}

TEST(Address, OfThisHostIsThatOfAnInterfaceThatIsNamed) {
  ::setenv("WHORL_HOST_ADDRESS", "lo", 1);
  const Result<std::vector<SocketAddress>> addresses = local_addresses();
  ::unsetenv("WHORL_HOST_ADDRESS");
  ASSERT_TRUE(addresses.ok()) << addresses.status().message();
  ASSERT_FALSE(addresses->empty());
  EXPECT_EQ("127.0.0.1:0", addresses->front().text());
}

TEST(Address, NoTextOfAnAddressControlsATerminal) {
  const std::string name = SocketAddress::unix_name("w\x1b[31m").text();
  EXPECT_EQ(name, "unix:w [31m");
  EXPECT_EQ(split_host_port("node\x1b:0").status().message().find('\x1b'), std::string::npos);
}

TEST(Address, EncodesAndDecodes) {
  for (const SocketAddress& address :
       {SocketAddress::ipv4({10, 1, 2, 3}, 4000), SocketAddress::ipv6({0xfd, 1, 2}, 4000),
        SocketAddress::unix_name("x"), SocketAddress::unix_name("123456789012345678")}) {
    EXPECT_TRUE(address.valid());
    EXPECT_EQ(address.text(), SocketAddress::decode(address.encode()).text());
  }
  EXPECT_FALSE(SocketAddress::unix_name("1234567890123456789").valid());
  EXPECT_FALSE(SocketAddress::unix_name("").valid());
  EXPECT_FALSE(SocketAddress::decode(std::array<std::byte, 19>{}).valid());
}

TEST(Address, ListsLoopbackLast) {
  const Result<std::vector<SocketAddress>> addresses = local_addresses();
  ASSERT_TRUE(addresses.ok());
  ASSERT_FALSE(addresses->empty());
  bool loopback = false;
  for (const SocketAddress& address : *addresses) {
    EXPECT_TRUE(address.is_loopback() || !loopback);
    loopback = address.is_loopback();
  }
}

TEST(Address, AWantOfPortsNamesTheirRange) {
  class NoPorts final : public System {
    int bind(int, const sockaddr*, socklen_t) noexcept override { return -EADDRINUSE; }
  } system;
  const ScopedSystem scope(&system);
  const std::string text = bind_at(kLoopback).status().message();
  EXPECT_NE(std::string::npos, text.find("net.ipv4.ip_local_port_range")) << text;
}

TEST(Address, ABusyPortNamesItselfAndTheRemedy) {
  const Listening first = listen_on();
  const Result<Fd> second = listen_at(first.address);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string::npos, second.status().message().find(first.address.text()));
  EXPECT_NE(std::string::npos, second.status().message().find("choose another port"));
}

} // namespace
} // namespace whorl
