// Tests of strangers at the root's port: idle, dribbling and senseless connections, many of them,
// at a small limit of open files. Ranks meet all the same, and nothing grows with the strangers.
#include <sys/resource.h>

#include <cstdio>

#include "net/acceptor.h"
#include "tests/security/world.h"
#include "tests/support/descriptors.h"
#include "tests/support/intruders.h"

namespace whorl::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Promised for a quiet machine are 0.1 s (docs/security.md).
constexpr double kMostAddedSeconds = 5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What strangers do once they are connected.
enum class Manner { kIdle, kDribble, kGarbage };

/// Opens connections, of which the last ones, at most 500, stay in `open`. For another process.
std::string disturb(const SocketAddress& address, Manner manner, int connections,
                    std::vector<Fd>& open) {
  constexpr std::size_t kOpen = 500;
  rlimit all{};
  ::getrlimit(RLIMIT_NOFILE, &all);
  all.rlim_cur = all.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &all);
  for (int i = 0; i < connections; ++i) {
    if (open.size() >= kOpen) open.erase(open.begin(), open.begin() + kOpen / 2);
    open.emplace_back(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(open.back().get(), address.data(), address.size()) != 0) {
      return "connection " + std::to_string(i) + ": " + errno_text(errno);
    }
    // A dribbler begins like a rank, and then sends a byte now and then.
    const std::string_view text = manner == Manner::kGarbage ? "GET / HTTP/1.0\r\n\r\n" : "whrh";
    if (manner != Manner::kIdle) ::send(open.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (manner != Manner::kDribble) continue;
    for (std::size_t k = 0; k < open.size(); k += 16) ::send(open[k].get(), "\2", 1, MSG_NOSIGNAL);
  }
  return "done";
}

/// Limits the files that this process may open beside those that it has open: roots of ids that
/// nobody has used keep theirs.
FewFiles few_files(int more) { return FewFiles(static_cast<rlim_t>(open_descriptors() + more)); }

class Strangers : public ::testing::TestWithParam<Manner> {};

TEST_P(Strangers, AddLittleTimeAtASmallLimitOfFiles) {
  constexpr int kRanks = 4, kConnections = 1500;
  const FewFiles few = few_files(256);
  const auto quiet = Clock::now();
  ASSERT_EQ(join_all(make_id(), kRanks), "");
  const double alone = seconds_since(quiet);
  const UniqueId id = make_id();
  std::vector<Fd> open;
  Other other([&] { return disturb(id.addresses.front(), GetParam(), kConnections, open); });
  ASSERT_EQ(other.run(), "done");
  const auto start = Clock::now();
  EXPECT_EQ(join_all(id, kRanks), "");
  const double together = seconds_since(start);
  std::printf("%d ranks met in %.0f ms, with strangers in %.0f ms\n", kRanks, alone * 1e3,
              together * 1e3);
  EXPECT_LT(together - alone, kMostAddedSeconds);
}

INSTANTIATE_TEST_SUITE_P(All, Strangers,
                         ::testing::Values(Manner::kIdle, Manner::kDribble, Manner::kGarbage),
                         [](const auto& manner) {
                           return manner.param == Manner::kIdle      ? "Idle"
                                  : manner.param == Manner::kDribble ? "Dribbling"
                                                                     : "Garbage";
                         });

/// Returns the memory of this process in KiB.
long resident_kib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

TEST(StrangersFull, TakeNeitherMemoryNorFilesByTheirNumber) {
  const FewFiles few = few_files(1024);
  const UniqueId id = make_id();
  const int before_files = open_descriptors();
  const auto flood = [&] {
    std::vector<Fd> open;
    Other other([&] { return disturb(id.addresses.front(), Manner::kDribble, 3000, open); });
    EXPECT_EQ(other.run(), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // the root accepts them
    constexpr int kMore = 8; // pipes of this test, sockets on their way
    EXPECT_LE(open_descriptors() - before_files, static_cast<int>(Acceptor::places()) + kMore);
  };
  flood(); // fills the places that there are
  const long before = resident_kib();
  for (int i = 0; i < 3; ++i) flood();
  std::printf("memory grew by %ld KiB after 9,000 more strangers\n", resident_kib() - before);
#ifdef __SANITIZE_ADDRESS__       // keeps freed memory for a while
  constexpr long kMostKib = 4096; // 9,000 handshakes are 5 MiB
#else
  constexpr long kMostKib = 1024;
#endif
  EXPECT_LT(resident_kib() - before, kMostKib);
  EXPECT_EQ(join_all(id, 2), "");
}

TEST(Strangers, AFloodWhileRanksMeetEndsInACommunicatorOrAnHonestError) {
  constexpr int kRanks = 4;
  const FewFiles few = few_files(128);
  const UniqueId id = make_id();
  std::string flooded;
  std::vector<Fd> open;
  Other other([&] { return disturb(id.addresses.front(), Manner::kIdle, 3000, open); });
  std::thread flood([&] { flooded = other.run(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20)); // a part of the flood
  const std::string error = join_all(id, kRanks);
  flood.join();
  if (!error.empty()) {
    EXPECT_THAT(error, ::testing::HasSubstr("open files"));
  }
}

TEST(Listeners, AreClosedWhenTheRanksAreConnected) {
  const ScopedEnv tcp{{"WHORL_TRANSPORTS", "tcp"}};
  const std::set<std::string> before = listening_sockets(); // for ids of other tests
  std::mutex mutex;
  std::set<std::string> open;
  const UniqueId id = make_id();
  EXPECT_GT(listening_sockets().size(), before.size()) << "the root listens";
  EXPECT_EQ(join_all(id, 3,
                     [&](whorlComm_t comm) {
                       float value = 1; // after it, all ranks have left the set-up
                       EXPECT_EQ(failure(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum,
                                                        comm, nullptr),
                                         comm),
                                 "");
                       const std::lock_guard lock(mutex);
                       open.merge(listening_sockets());
                     }),
            "");
  EXPECT_TRUE(std::includes(before.begin(), before.end(), open.begin(), open.end()))
      << ::testing::PrintToString(open) << " beside " << ::testing::PrintToString(before);
  const Fd late(::socket(id.addresses.front().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(0, ::connect(late.get(), id.addresses.front().data(), id.addresses.front().size()));
}

} // namespace
} // namespace whorl::test
