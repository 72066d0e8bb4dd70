// Tests of ranks on several hosts whose network loses some packets.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Sockets { kAll, kControl };

/// Lets the kernel drop, unacknowledged, what comes for TCP sockets of this process in packets of
/// more than `most` bytes, TCP's header included; with `most` = UINT32_MAX nothing any more.
/// Returns the number of sockets.
int drop_packets(Sockets which, std::uint32_t most) {
  sock_filter rules[]{BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
                      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 0, 1), BPF_STMT(BPF_RET | BPF_K, 0),
                      BPF_STMT(BPF_RET | BPF_K, 0x40000)};
  const sock_fprog program{.len = 4, .filter = rules};
  int sockets = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int option = 0;
    socklen_t size = sizeof option;
    // Other sockets than those of TCP have no such option, and those for data have not set it.
    if (::getsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &option, &size) != 0) continue;
    if (which == Sockets::kControl && option == 0) continue;
    if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0) ++sockets;
  }
  ::closedir(folder);
  return sockets;
}

/// Runs `body` with a communicator of two ranks that take themselves for hosts.
void run_hosts(const char* timeout_ms, const JoinedBody& body) {
  const auto environment = [=](int rank) {
    return Environment{{"WHORL_TRANSPORTS", "tcp"},
                       {"WHORL_HOST_ID", std::to_string(rank)},
                       {"WHORL_TIMEOUT_MS", timeout_ms}};
  };
  const auto after_a_barrier = [&](RankContext& context, whorlComm_t comm) {
    ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
    body(context, comm);
  };
  EXPECT_EQ(run_joined(2, environment, after_a_barrier), "");
}

whorlResult_t reduce(std::vector<int>& data, whorlRedOp_t op, whorlComm_t comm) {
  return whorlAllReduce(data.data(), data.data(), data.size(), whorlInt32, op, comm, nullptr);
}

/// As where a tunnel on the way takes smaller packets than the interfaces of the hosts, and says so
/// to nobody.
TEST(LossyPaths, ThatDropLargePacketsAreNamedAtTheTimeout) {
  run_hosts("2000", [](RankContext& context, whorlComm_t comm) {
    EXPECT_GT(drop_packets(Sockets::kAll, 1400), 0);
    context.barrier();
    EXPECT_EQ(failure(whorlBarrier(comm, nullptr), comm), "") << "small packets pass";
    std::vector<int> data(100'000, 1);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(reduce(data, whorlSum, comm), whorlRemoteError);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    const std::string text = whorlGetLastError(comm);
    EXPECT_THAT(text, HasSubstr("no progress within the timeout"));
    EXPECT_THAT(text, HasSubstr("has come to this operation"));
    EXPECT_THAT(text, HasSubstr("(MTU)"));
    EXPECT_THAT(text, Not(HasSubstr("may not have made this call")));
  });
}

TEST(LossyPaths, AreNotNamedWhereTheProgramLetsRanksWaitForEachOther) {
  run_hosts("2000", [](RankContext& context, whorlComm_t comm) {
    int value = 0;
    EXPECT_EQ(whorlRecv(&value, 1, whorlInt32, 1 - context.rank, comm, nullptr), whorlRemoteError);
    const std::string text = whorlGetLastError(comm);
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(1 - context.rank)));
    EXPECT_THAT(text, Not(HasSubstr("(MTU)")));
  });
}

/// As behind a long queue of data on a slow link, in which beats come too late.
TEST(LossyPathsFull, APeerWhoseDataArriveIsNotUnreachable) {
  run_hosts("10000", [](RankContext& context, whorlComm_t comm) {
    EXPECT_EQ(drop_packets(Sockets::kControl, 0), 1);
    context.barrier();
    const auto start = std::chrono::steady_clock::now();
    std::vector<int> data(100'000, 1), last(1);
    while (last[0] == 0) { // until both have seen the time pass
      ASSERT_EQ(failure(reduce(data, whorlMax, comm), comm), "");
      // A rank sends its beats while it waits.
      if (context.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      last[0] = std::chrono::steady_clock::now() - start > std::chrono::seconds(7) ? 1 : 0;
      ASSERT_EQ(failure(reduce(last, whorlMin, comm), comm), "");
    }
    drop_packets(Sockets::kControl, UINT32_MAX);
    context.barrier();
    EXPECT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
  });
}

/// Shows that a peer is given up once its connections for data carry nothing either.
TEST(LossyPathsFull, APeerOfWhichNothingArrivesIsUnreachable) {
  run_hosts("20000", [](RankContext& context, whorlComm_t comm) {
    context.barrier();
    EXPECT_GT(drop_packets(Sockets::kAll, 0), 1);
    const auto start = std::chrono::steady_clock::now();
    std::vector<int> data(100'000, 1);
    EXPECT_EQ(reduce(data, whorlSum, comm), whorlRemoteError);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6)); // promised: 3 s
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("cannot be reached any more"));
  });
}

} // namespace
} // namespace whorl::test
