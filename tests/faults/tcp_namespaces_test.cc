// Tests of two ranks in two network namespaces joined by a virtual cable, which is cut or loses
// everything, for some time or for good.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.h"
#include "tests/support/cable.h"
#include "transports/tcp/transport.h"

namespace whorl {
namespace {

using test::Cable;

bool write_all(int fd, const void* data, std::size_t size) {
  return ::send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}
bool read_all(int fd, void* data, std::size_t size) {
  return ::recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

/// Report of a rank at its end.
struct Report {
  double seconds = 0; ///< time from the first message to the end
  char text[512] = {};
};

/// One rank, in a process of its own.
class Rank {
 public:
  Rank(int rank, int parent, bool encrypts) : rank_(rank), parent_(parent), transport_(encrypts) {}

  /// Connects, exchanges a message, and tells the parent.
  void connect() {
    if (!Cable::enter(rank_)) fail("setns");
    membership_.rank = rank_;
    membership_.nranks = 2;
    membership_.comm_error = &comm_error_;
    membership_.timeout_ns = 10'000'000'000;
    membership_.peers.resize(2);
    const auto address = transport_.listen(membership_.identity);
    if (!address.ok()) fail(address.status().message());
    PeerInfo& own = membership_.peers[static_cast<std::size_t>(rank_)];
    own.rank = static_cast<std::uint32_t>(rank_);
    own.host_key = static_cast<std::uint64_t>(rank_);
    std::strcpy(own.host_name.data(), "h");
    own.addresses[0].size = static_cast<std::uint32_t>(address->size());
    std::memcpy(own.addresses[0].bytes.data(), address->data(), address->size());
    const int peer = 1 - rank_;
    PeerInfo& other = membership_.peers[static_cast<std::size_t>(peer)];
    if (!write_all(parent_, &own, sizeof own) || !read_all(parent_, &other, sizeof other)) {
      fail("no address of the peer");
    }
    if (const Status status = transport_.connect(membership_, {&peer, 1}, 0); !status.ok()) {
      fail(status.message());
    }
    send(1);
    if (receive() == 0) fail(comm_error_.status().message());
    const char connected = 1;
    write_all(parent_, &connected, 1);
    start_ns_ = sys().now_ns();
  }
  /// Sends a message of `bytes`.
  void send(std::size_t bytes) {
    Endpoint& endpoint = *transport_.endpoint(1 - rank_, 0);
    endpoint.try_reserve();
    endpoint.commit(bytes, {});
    wait([&] { return endpoint.flushed() ? Progress::kDone : endpoint.progress(); });
  }
  /// Receives a message. Returns its size; 0 after an error.
  std::size_t receive() {
    Endpoint& endpoint = *transport_.endpoint(1 - rank_, 0);
    if (wait([&] { return endpoint.try_peek() ? Progress::kDone : endpoint.progress(); }) !=
        WaitResult::kReady) {
      return 0;
    }
    const std::size_t bytes = endpoint.try_peek().bytes;
    endpoint.release();
    return bytes;
  }
  bool failed() const { return comm_error_.is_set(); }
  /// Returns whether the parent has said something.
  bool called() const {
    pollfd one{.fd = parent_, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) > 0;
  }
  /// Reports to the parent, and ends the process: after a success when the parent has all reports,
  /// because the end of a rank is an error for one that still waits.
  [[noreturn]] void end() {
    Report report;
    report.seconds = static_cast<double>(sys().now_ns() - start_ns_) / 1e9;
    comm_error_.status().message().copy(report.text, sizeof report.text - 1);
    write_all(parent_, &report, sizeof report);
    char rest = 0;
    while (!failed() && read_all(parent_, &rest, 1)) {
    } // until the parent closes its end
    ::_exit(0);
  }

 private:
  template <class Attempt>
  WaitResult wait(Attempt&& attempt) {
    const WaitPolicy policy{.timeout_ns = 20'000'000'000, .spins = 20, .yield_ns = 1000};
    return wait_until(attempt, policy, comm_error_, transport_);
  }
  [[noreturn]] void fail(const std::string& text) {
    Report report;
    report.seconds = -1;
    text.copy(report.text, sizeof report.text - 1);
    write_all(parent_, &report, sizeof report);
    ::_exit(1);
  }

  const int rank_, parent_;
  CommError comm_error_;
  Membership membership_;
  TcpTransport transport_;
  std::uint64_t start_ns_ = 0;
};

class TcpNamespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (!cable_.ready()) GTEST_SKIP() << "network namespaces or veth are not available here";
  }
  void TearDown() override {
    for (const int end : ends_) ::close(end);
    for (const pid_t pid : pids_) {
      if (pid > 0) ::waitpid(pid, nullptr, 0);
    }
  }
  /// Starts two ranks, each of which does `live` once they are connected.
  void start(const std::function<void(Rank&)>& live, bool encrypts = false) {
    for (int rank = 0; rank < 2; ++rank) {
      int ends[2];
      ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
      pids_[rank] = ::fork();
      ASSERT_GE(pids_[rank], 0);
      if (pids_[rank] == 0) {
        ::close(ends[0]);
        if (rank > 0) ::close(ends_[0]);
        Rank self(rank, ends[1], encrypts);
        self.connect();
        live(self);
        self.end();
      }
      ::close(ends[1]);
      ends_[rank] = ends[0];
    }
    PeerInfo peers[2];
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(read_all(ends_[rank], &peers[rank], sizeof peers[rank]));
    }
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(write_all(ends_[rank], &peers[1 - rank], sizeof peers[rank]));
    }
    for (const int end : ends_) {
      char connected = 0;
      ASSERT_TRUE(read_all(end, &connected, 1));
      ASSERT_EQ(1, connected);
    }
  }
  Report report_of(int rank) {
    Report report;
    EXPECT_TRUE(read_all(ends_[rank], &report, sizeof report));
    EXPECT_GE(report.seconds, 0) << report.text;
    ::printf("rank %d after %.2f s: %s\n", rank, report.seconds, report.text);
    return report;
  }
  /// Way in which the ranks lose each other.
  enum class Loss : std::uint8_t {
    kCable,  ///< the cable is cut: interfaces go down, and addresses are resolved anew afterwards
    kPackets ///< what is sent does not arrive
  };
  /// Interrupts the connection for a time. Returns for how long: longer on a busy machine.
  std::chrono::nanoseconds interrupt(Loss loss, std::chrono::milliseconds time) {
    const auto before = std::chrono::steady_clock::now();
    EXPECT_TRUE(loss == Loss::kCable ? cable_.cut() : cable_.lose());
    std::this_thread::sleep_for(time);
    EXPECT_TRUE(loss == Loss::kCable ? cable_.mend() : cable_.pass());
    return std::chrono::steady_clock::now() - before;
  }
  /// Interrupts ranks that exchange messages, with pauses that are up to 300 ms longer than
  /// `pause`.
  void survive(Loss loss, const std::vector<std::chrono::milliseconds>& outages,
               std::chrono::milliseconds pause) {
    ASSERT_NO_FATAL_FAILURE(start([](Rank& self) {
      while (!self.failed()) {
        const std::size_t bytes = self.called() ? 2 : 1; // 2: the last one
        self.send(bytes);
        const std::size_t got = self.receive();
        if (bytes == 2 && got == 2) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
    }));
    std::minstd_rand random(7);
    std::chrono::nanoseconds longest{0};
    for (const auto outage : outages) {
      if (longest.count() > 0) {
        std::this_thread::sleep_for(pause + std::chrono::milliseconds(random() % 300));
      }
      longest = std::max(longest, interrupt(loss, outage));
    }
    for (const int end : ends_) write_all(end, "", 1);
    for (const Report& report : {report_of(0), report_of(1)}) {
      const std::chrono::seconds survived(loss == Loss::kCable ? 1 : 2);
      if (*report.text != '\0' && longest > survived) {
        GTEST_SKIP() << "this busy machine made an outage of "
                     << std::chrono::duration<double>(longest).count()
                     << " s, longer than those that are survived";
      }
      EXPECT_STREQ(report.text, "");
    }
  }

  Cable cable_;

 private:
  pid_t pids_[2] = {};
  int ends_[2] = {-1, -1};
};

class TcpNamespacesEncryptedOrNot : public TcpNamespaces,
                                    public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Encryption, TcpNamespacesEncryptedOrNot, ::testing::Bool());

TEST_P(TcpNamespacesEncryptedOrNot, ACutCableIsNoticedOnBothSides) {
  ASSERT_NO_FATAL_FAILURE(start([](Rank& self) { self.receive(); }, GetParam())); // nobody sends
  ASSERT_TRUE(cable_.cut());
  for (int rank = 0; rank < 2; ++rank) {
    const Report report = report_of(rank);
    EXPECT_GT(report.seconds, 2) << "outages up to here are survived";
    EXPECT_LT(report.seconds, 6) << "promised: 3 s";
    EXPECT_NE(nullptr, std::strstr(report.text, "cannot be reached any more")) << report.text;
    EXPECT_NE(nullptr, std::strstr(report.text, rank == 0 ? "rank 1" : "rank 0")) << report.text;
  }
}

TEST_F(TcpNamespaces, ShortOutagesAreSurvived) {
  survive(Loss::kCable, std::vector(60, std::chrono::milliseconds(10)),
          std::chrono::milliseconds(0));
}

// Time in which a control connection recovers: the kernel repeats what was lost after pauses of up
// to 0.8 s, and the beats that correct its estimate of a round trip take 0.4 s. Outages that follow
// each other sooner may count as one.
constexpr std::chrono::milliseconds kRecovery(1500);

TEST_F(TcpNamespaces, OutagesOfTwoSecondsAreSurvived) {
  using std::chrono::milliseconds;
  survive(Loss::kPackets,
          {milliseconds(1000), milliseconds(1900), milliseconds(1400), milliseconds(1900)},
          kRecovery);
}

TEST_F(TcpNamespaces, AnInterfaceMayBeDownForASecond) {
  using std::chrono::milliseconds;
  // If the first question for an address is lost, the kernel asks again a second later.
  survive(Loss::kCable, {milliseconds(900), milliseconds(500), milliseconds(800)}, 2 * kRecovery);
}

} // namespace
} // namespace whorl
