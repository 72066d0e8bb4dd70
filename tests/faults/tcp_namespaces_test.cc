// Tests of two ranks in two network namespaces joined by a virtual cable, which is then cut.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/wait.h"
#include "transports/tcp/transport.h"

namespace whorl {
namespace {

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Namespaces w<pid>a (10.77.0.1) and w<pid>b (10.77.0.2), with a cable between them.
class Cable {
 public:
  Cable() {
    ready_ =
        shell("ip netns add " + name(0)) && shell("ip netns add " + name(1)) &&
        shell("ip -n " + name(0) + " link add cable0 type veth peer name cable1 netns " + name(1));
    for (int side = 0; side < 2 && ready_; ++side) {
      const std::string cable = "cable" + std::to_string(side);
      ready_ = shell("ip -n " + name(side) + " addr add 10.77.0." + std::to_string(side + 1) +
                     "/24 dev " + cable) &&
               shell("ip -n " + name(side) + " link set " + cable + " up") &&
               shell("ip -n " + name(side) + " link set lo up");
    }
  }
  ~Cable() {
    for (int side = 0; side < 2; ++side) shell("ip netns del " + name(side));
  }
  bool ready() const { return ready_; }
  static std::string name(int side) {
    static const std::string prefix = "w" + std::to_string(::getpid());
    return prefix + (side == 0 ? "a" : "b");
  }
  bool cut() { return shell("ip -n " + name(0) + " link set cable0 down"); }

 private:
  bool ready_ = false;
};

bool write_all(int fd, const void* data, std::size_t size) {
  return ::send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}
bool read_all(int fd, void* data, std::size_t size) {
  return ::recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

/// Report of a rank at its end.
struct Report {
  double seconds = 0; ///< time from the last message to the error
  char text[512] = {};
};

/// Runs a rank's process: connects, exchanges a message, then waits for one that is never sent.
void live(int rank, int parent) {
  Report report;
  const auto fail = [&](const std::string& text) {
    report.seconds = -1;
    text.copy(report.text, sizeof report.text - 1);
    write_all(parent, &report, sizeof report);
    ::_exit(1);
  };
  const int space = ::open(("/run/netns/" + Cable::name(rank)).c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) fail("setns");
  CommError comm_error;
  Membership membership;
  membership.rank = rank;
  membership.nranks = 2;
  membership.comm_error = &comm_error;
  membership.timeout_ns = 10'000'000'000;
  membership.peers.resize(2);
  TcpTransport transport;
  const auto address = transport.listen(membership.identity);
  if (!address.ok()) fail(address.status().message());
  PeerInfo& own = membership.peers[static_cast<std::size_t>(rank)];
  own.rank = static_cast<std::uint32_t>(rank);
  own.host_key = static_cast<std::uint64_t>(rank);
  std::strcpy(own.host_name.data(), "h");
  own.addresses[0].size = static_cast<std::uint32_t>(address->size());
  std::memcpy(own.addresses[0].bytes.data(), address->data(), address->size());
  PeerInfo& other = membership.peers[static_cast<std::size_t>(1 - rank)];
  if (!write_all(parent, &own, sizeof own) || !read_all(parent, &other, sizeof other)) fail("info");
  const int peer = 1 - rank;
  if (const Status status = transport.connect(membership, {&peer, 1}, 0); !status.ok()) {
    fail(status.message());
  }
  Endpoint& endpoint = *transport.endpoint(peer, 0);
  endpoint.try_reserve();
  endpoint.commit(1, {});
  const WaitPolicy policy{.timeout_ns = 20'000'000'000, .spins = 20, .yield_ns = 1000};
  const auto receive = [&] {
    return wait_until([&] { return endpoint.try_peek() ? Progress::kDone : endpoint.progress(); },
                      policy, comm_error, transport);
  };
  if (receive() != WaitResult::kReady) fail(comm_error.status().message());
  endpoint.release();
  const char connected = 1;
  write_all(parent, &connected, 1);
  const std::uint64_t start = sys().now_ns();
  receive();
  report.seconds = static_cast<double>(sys().now_ns() - start) / 1e9;
  comm_error.status().message().copy(report.text, sizeof report.text - 1);
  write_all(parent, &report, sizeof report);
  ::_exit(0);
}

TEST(TcpNamespaces, ACutCableIsNoticedOnBothSides) {
  if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  Cable cable;
  if (!cable.ready()) GTEST_SKIP() << "network namespaces or veth are not available here";
  int ends[2][2];
  pid_t pids[2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends[rank]));
    pids[rank] = ::fork();
    ASSERT_GE(pids[rank], 0);
    if (pids[rank] == 0) live(rank, ends[rank][1]);
    ::close(ends[rank][1]);
  }
  PeerInfo peers[2];
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(read_all(ends[rank][0], &peers[rank], sizeof peers[rank]));
  }
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(write_all(ends[rank][0], &peers[1 - rank], sizeof peers[rank]));
  }
  for (int rank = 0; rank < 2; ++rank) {
    char connected = 0;
    ASSERT_TRUE(read_all(ends[rank][0], &connected, 1));
    ASSERT_EQ(1, connected);
  }
  ASSERT_TRUE(cable.cut());
  for (int rank = 0; rank < 2; ++rank) {
    Report report;
    ASSERT_TRUE(read_all(ends[rank][0], &report, sizeof report));
    EXPECT_GE(report.seconds, 0) << report.text;
    EXPECT_LT(report.seconds, 6) << "promised: 3 s";
    EXPECT_NE(nullptr, std::strstr(report.text, "cannot be reached any more")) << report.text;
    EXPECT_NE(nullptr, std::strstr(report.text, rank == 0 ? "rank 1" : "rank 0")) << report.text;
    ::printf("rank %d after %.2f s: %s\n", rank, report.seconds, report.text);
    ::waitpid(pids[rank], nullptr, 0);
    ::close(ends[rank][0]);
  }
}

} // namespace
} // namespace whorl
