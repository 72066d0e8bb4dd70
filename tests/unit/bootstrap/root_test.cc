#include "bootstrap/bootstrap.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/identity.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

// --- unique id ---

TEST(UniqueId, SurvivesTheTrip) {
  UniqueId id;
  id.identity.job.fill(std::byte{3});
  id.identity.secret.fill(std::byte{4});
  id.addresses = {SocketAddress::ipv4({10, 0, 0, 1}, 99), SocketAddress::ipv6({0xfd}, 99)};
  const auto bytes = id.encode();
  ASSERT_TRUE(bytes.ok());
  const Result<UniqueId> again = UniqueId::decode(*bytes);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(id.identity.job, again->identity.job);
  EXPECT_EQ(id.identity.secret, again->identity.secret);
  ASSERT_EQ(2U, again->addresses.size());
  EXPECT_EQ("[fd00::]:99", again->addresses[1].text());
}

TEST(UniqueId, EveryDamageIsFound) {
  const auto bytes = loopback_root(1).encode();
  ASSERT_TRUE(bytes.ok());
  for (std::size_t at = 0; at < bytes->size(); ++at) {
    auto damaged = *bytes;
    damaged[at] ^= std::byte{1};
    const Result<UniqueId> id = UniqueId::decode(damaged);
    ASSERT_FALSE(id.ok()) << at;
    EXPECT_EQ(Code::kInvalidArgument, id.status().code());
  }
  const Result<UniqueId> zero = UniqueId::decode(std::array<std::byte, UniqueId::kBytes>{});
  ASSERT_FALSE(zero.ok());
  EXPECT_TRUE(contains(zero.status().message(), "all zeros"));
}

TEST(UniqueId, RandomBytesNeverPass) {
  std::uint64_t state = 42;
  for (int i = 0; i < 20'000; ++i) {
    std::array<std::byte, UniqueId::kBytes> bytes{};
    for (std::byte& byte : bytes) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(state >> 56);
    }
    if (i % 2 == 0) std::memcpy(bytes.data(), "WID1", 4); // passes the first check
    EXPECT_FALSE(UniqueId::decode(bytes).ok());
  }
}

// --- rendezvous ---

/// System on which the options of sockets are noted.
class NotedOptions final : public System {
 public:
  int setsockopt(int fd, int level, int option, int value) noexcept override {
    if (level == SOL_SOCKET && option == SO_KEEPALIVE && value == 1) ++probed;
    return System::setsockopt(fd, level, option, value);
  }
  std::atomic<int> probed{0};
};

TEST(Root, ProbesSilentMembersBecauseTheirHostsMayVanish) {
  auto& system = lasting<NotedOptions>();
  const ScopedSystem scope(&system);
  constexpr int kRanks = 3;
  const Result<UniqueId> id = start_root();
  ASSERT_TRUE(id.ok()) << id.status().message();
  meet(kRanks, [&](int rank) { return meet_by_id(*id, attendant(rank, kRanks)); });
  EXPECT_EQ(system.probed, kRanks);
}

class MeetById : public testing::TestWithParam<int> {};
TEST_P(MeetById, AllRanks) {
  const Result<UniqueId> id = start_root();
  ASSERT_TRUE(id.ok()) << id.status().message();
  const auto bytes = id->encode();
  ASSERT_TRUE(bytes.ok());
  meet(GetParam(), [&](int rank) {
    return meet_by_id(*UniqueId::decode(*bytes), attendant(rank, GetParam()));
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, MeetById, testing::Values(1, 2, 3, 16, 64));

TEST(Bootstrap, EveryMeetingHasItsOwnIdentity) {
  Identity first;
  for (int i = 0; i < 2; ++i) {
    const UniqueId id = loopback_root(); // the same secret twice
    const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(0, 1));
    ASSERT_TRUE(rendezvous.ok());
    EXPECT_NE(first.secret, rendezvous->identity.secret);
    EXPECT_NE(first.job, rendezvous->identity.job);
    first = rendezvous->identity;
  }
}

TEST(Bootstrap, NamesTheMissingRanks) {
  const UniqueId id = loopback_root();
  const auto start = Clock::now();
  in_threads(8, [&](int rank) {
    if (rank == 2 || rank == 5) return;
    const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(rank, 8, 1.5));
    ASSERT_FALSE(rendezvous.ok());
    const std::string& text = rendezvous.status().message();
    EXPECT_EQ(Code::kRemoteError, rendezvous.status().code());
    EXPECT_TRUE(contains(text, "ranks 2 and 5 of 8 did not arrive within the timeout of 1.5 s"))
        << text;
    EXPECT_TRUE(contains(text, "6 ranks are waiting")) << text;
  });
  EXPECT_LT(seconds_since(start), 10);
}

TEST(Bootstrap, SaysOfARankThatHasComeWhatMayKeepIt) {
  const UniqueId id = loopback_root();
  std::atomic<bool> over{false};
  in_threads(2, [&](int rank) {
    const Result<Rendezvous> met = meet_by_id(id, attendant(rank, 2, 0.5));
    ASSERT_TRUE(met.ok()) << met.status().message();
    if (rank == 1) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    const std::byte mine{};
    std::array<std::byte, 2> all{};
    const std::string text = met->oob->allgather(std::span(&mine, 1), all).message();
    over = true;
    EXPECT_TRUE(contains(text, "did not contribute to the rendezvous")) << text;
    EXPECT_TRUE(contains(text, "Check that it is not stopped")) << text;
    EXPECT_FALSE(contains(text, "started")) << text;
  });
}

TEST(Bootstrap, LateRanksHearOfTheFailureAtOnce) {
  const Result<UniqueId> id = start_root();
  ASSERT_TRUE(id.ok());
  EXPECT_FALSE(meet_by_id(*id, attendant(0, 2, 1)).ok());
  const auto start = Clock::now();
  const Result<Rendezvous> late = meet_by_id(*id, attendant(1, 2, 30));
  ASSERT_FALSE(late.ok());
  EXPECT_TRUE(contains(late.status().message(), "rank 1 of 2 did not arrive"))
      << late.status().message();
  EXPECT_LT(seconds_since(start), 10);
}

/// Returns whether a connection waits to be accepted.
bool connection_waits(int listener) {
  pollfd waiting{listener, POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

/// System whose process has no descriptor for the first connection that waits to be accepted. The
/// root of the test before may still look whether another one waits.
class CrowdedSystem final : public System {
 public:
  int accept(int fd) noexcept override {
    return connection_waits(fd) && crowded_.exchange(false) ? -EMFILE : System::accept(fd);
  }

 private:
  std::atomic<bool> crowded_{true};
};

TEST(Bootstrap, ARootWithoutDescriptorsIsBlamedAndNotTheId) {
  const ScopedSystem scope(&lasting<CrowdedSystem>());
  const Result<UniqueId> id = start_root(RootScope::kThisHost);
  ASSERT_TRUE(id.ok());
  for (const int rank : {0, 1}) { // the second one after the failure
    const Result<Rendezvous> rendezvous = meet_by_id(*id, attendant(rank, 2, 10));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_TRUE(
        contains(rendezvous.status().message(), "cannot accept a connection: Too many open"))
        << rendezvous.status().message();
  }
}

/// System whose process has just enough descriptors for the connections that come: the kernel finds
/// none left before it finds that no connection waits.
class FilledSystem final : public System {
 public:
  int accept(int fd) noexcept override {
    return connection_waits(fd) ? System::accept(fd) : -EMFILE;
  }
};

TEST(Bootstrap, TheLastDescriptorOfTheRootIsForARank) {
  const ScopedSystem scope(&lasting<FilledSystem>());
  const Result<UniqueId> id = start_root(RootScope::kThisHost);
  ASSERT_TRUE(id.ok());
  meet(2, [&](int rank) { return meet_by_id(*id, attendant(rank, 2, 10)); });
}

TEST(Bootstrap, TwoProcessesWithOneRankAreAnErrorForAll) {
  const UniqueId id = loopback_root();
  in_threads(3, [&](int i) {
    const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(i == 2 ? 1 : i, 3));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_TRUE(contains(rendezvous.status().message(), "two processes say that they are rank 1"))
        << rendezvous.status().message();
  });
}

TEST(Bootstrap, DisagreementAboutTheNumberOfRanksIsAnErrorForAll) {
  const UniqueId id = loopback_root();
  in_threads(3, [&](int rank) {
    const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(rank, rank == 1 ? 4 : 3));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_TRUE(contains(rendezvous.status().message(), "the ranks disagree about their number"))
        << rendezvous.status().message();
  });
}

TEST(Bootstrap, DisagreementAboutSizesIsAnErrorForAll) {
  const UniqueId id = loopback_root();
  in_threads(3, [&](int rank) {
    Result<Rendezvous> rendezvous = meet_by_id(id, attendant(rank, 3));
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status().message();
    std::vector<std::byte> mine(rank == 1 ? 5 : 4);
    std::vector<std::byte> all(mine.size() * 3);
    const Status status = rendezvous->oob->allgather(mine, all);
    EXPECT_TRUE(contains(status.message(), "others give")) << status.message();
    EXPECT_FALSE(rendezvous->oob->allgather(mine, all).ok()) << "the error stays";
  });
}

TEST(Bootstrap, ARankThatDiesInTheMiddleIsNamed) {
  const UniqueId id = loopback_root();
  const auto start = Clock::now();
  in_threads(4, [&](int rank) {
    Result<Rendezvous> rendezvous = meet_by_id(id, attendant(rank, 4));
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status().message();
    exchange(*rendezvous->oob, rank, 4, 100, 0);
    if (rank == 2) return; // closes its connection
    std::vector<std::byte> mine(10);
    std::vector<std::byte> all(40);
    const Status status = rendezvous->oob->allgather(mine, all);
    EXPECT_EQ(Code::kRemoteError, status.code());
    EXPECT_TRUE(contains(status.message(), "rank 2 (host ")) << status.message();
  });
  EXPECT_LT(seconds_since(start), 10);
}

/// System of a process that ends when a test says so, which means that nothing is sent any more. A
/// thread that closes a socket may lose the processor then, and a second of the clock takes a
/// minute, so that a rank of a busy machine does not stop to wait for the root.
class EndingSystem final : public System {
 public:
  std::uint64_t now_ns() noexcept override {
    return began_ns_ + (System::now_ns() - began_ns_) / 60;
  }
  ::ssize_t send(int fd, std::span<const std::byte> data) noexcept override {
    return ended ? -EPIPE : System::send(fd, data);
  }
  int close(int fd) noexcept override {
    const int result = System::close(fd);
    if (slow) sleep_ns(100'000'000);
    return result;
  }
  std::atomic<bool> slow{false}, ended{false};

 private:
  const std::uint64_t began_ns_ = System::now_ns();
};

TEST(Bootstrap, WhoGivesUpMayEndTheProcessOfTheRootWhenTheOthersHaveBeenTold) {
  for (const Code code : {Code::kSystemError, Code::kRemoteError}) {
    auto& system = lasting<EndingSystem>();
    const ScopedSystem scope(&system);
    const UniqueId id = loopback_root();
    std::vector<Rendezvous> met(4);
    in_threads(4, [&](int rank) {
      Result<Rendezvous> one = meet_by_id(id, attendant(rank, 4));
      ASSERT_TRUE(one.ok()) << one.status().message();
      met[static_cast<std::size_t>(rank)] = *std::move(one);
    });
    system.slow = true;
    EXPECT_EQ("the cause", met[0].oob->give_up(Status::error(code, "the cause")).message());
    system.ended = true;
    const auto start = Clock::now();
    for (std::size_t rank = 1; rank < met.size(); ++rank) {
      Oob& oob = *met[rank].oob;
      while (oob.check().ok() && seconds_since(start) < 20) system.sleep_ns(1'000'000);
      const std::string text = oob.check().message();
      EXPECT_TRUE(contains(text, "could not join: the cause")) << rank << ": " << text;
    }
    system.slow = false;
  }
}

TEST(Bootstrap, StrangersAddLittleTime) {
  const UniqueId id = loopback_root();
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    const SocketAddress& address = id.addresses.front();
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(0, ::connect(strangers.back().get(), address.data(), address.size()));
    if (i % 2 == 0) {
      ASSERT_LT(0, ::send(strangers.back().get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL));
    }
  }
  const auto start = Clock::now();
  meet(4, [&](int rank) { return meet_by_id(id, attendant(rank, 4)); });
  EXPECT_LT(seconds_since(start), 5) << "promised: 0.1 s on a quiet machine";
}

TEST(Bootstrap, AWrongSecretIsNamed) {
  UniqueId id = loopback_root(20'000'000'000);
  id.identity.secret[0] ^= std::byte{1};
  const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(0, 2));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), "wrong secret"))
      << rendezvous.status().message();
}

TEST(Bootstrap, AnAbsentRootIsAnErrorWithEveryAddress) {
  UniqueId id;
  const ReservedPort closed;
  id.addresses = {closed.address()};
  const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(1, 2, 0.2));
  ASSERT_FALSE(rendezvous.ok());
  const std::string& text = rendezvous.status().message();
  EXPECT_TRUE(contains(text, "the process that made it runs")) << text;
  EXPECT_TRUE(contains(text, id.addresses[0].text() + " refused connections")) << text;
}

/// Expects that a rank which uses the id of an existing communicator gets an error without a wait.
void expect_used_up(const UniqueId& id, Code code, int rank, int nranks) {
  const auto start = Clock::now();
  const Result<Rendezvous> rendezvous = meet_by_id(id, attendant(rank, nranks, 60));
  ASSERT_FALSE(rendezvous.ok());
  const std::string& text = rendezvous.status().message();
  EXPECT_EQ(code, rendezvous.status().code());
  EXPECT_TRUE(contains(text, "a unique id makes one communicator")) << text;
  EXPECT_TRUE(contains(text, "call whorlGetUniqueId() for each communicator")) << text;
  EXPECT_LT(seconds_since(start), 30);
}

TEST(Bootstrap, AUsedUpIdIsNotWaitedFor) {
  const Result<UniqueId> id = start_root(); // with all addresses of this host
  ASSERT_TRUE(id.ok()) << id.status().message();
  meet(2, [&](int rank) { return meet_by_id(*id, attendant(rank, 2)); });
  // The first two are ranks that have used the id; the third is another rank, which asks the root.
  expect_used_up(*id, Code::kInvalidUsage, 0, 2);
  expect_used_up(*id, Code::kInvalidUsage, 1, 2);
  expect_used_up(*id, Code::kRemoteError, 2, 3);
}

TEST(Bootstrap, AUsedUpIdIsNotWaitedForWhereAChildHasTheRootsSockets) {
  const Result<UniqueId> id = start_root();
  ASSERT_TRUE(id.ok()) << id.status().message();
  // Without the handlers of fork(), which take the sockets away from the child.
  const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  meet(2, [&](int rank) { return meet_by_id(*id, attendant(rank, 2)); });
  expect_used_up(*id, Code::kRemoteError, 2, 3);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Bootstrap, ARootForThisHostOpensNoPort) {
  const Result<UniqueId> id = start_root(RootScope::kThisHost);
  ASSERT_TRUE(id.ok()) << id.status().message();
  ASSERT_EQ(1U, id->addresses.size());
  EXPECT_EQ(AF_UNIX, id->addresses[0].family());
  meet(2, [&](int rank) { return meet_by_id(*id, attendant(rank, 2)); });
}

TEST(Bootstrap, ARankMayComeBeforeRank0ToAnAddress) {
  const ReservedPort later;
  const std::string where = "127.0.0.1:" + later.text();
  in_threads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const Result<Rendezvous> rendezvous = meet_by_address(where, attendant(rank, 2));
    EXPECT_TRUE(rendezvous.ok()) << rendezvous.status().message();
  });
}

TEST(Bootstrap, AnErrorEndsTheWaiting) {
  const UniqueId id = loopback_root();
  CommError comm_error;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comm_error.set(Status::error(Code::kInvalidUsage, "aborted"));
  });
  Attendant self = attendant(0, 2);
  self.comm_error = &comm_error;
  const Result<Rendezvous> rendezvous = meet_by_id(id, self);
  other.join();
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_EQ("aborted", rendezvous.status().message());
}

TEST(Bootstrap, WhoIsAbortedWhileItConnectsTellsTheOthers) {
  const ScopedSystem slow_clock(&lasting<EndingSystem>());
  Result<RootDoors> doors = open_root_doors(RootScope::kThisHost);
  ASSERT_TRUE(doors.ok()) << doors.status().message();
  const Result<Identity> identity = make_identity();
  ASSERT_TRUE(identity.ok());
  UniqueId id;
  id.identity = *identity;
  id.addresses = doors->addresses;
  CommError comm_error;
  std::thread aborted([&] {
    Attendant self = attendant(1, 2);
    self.comm_error = &comm_error;
    EXPECT_EQ("aborted", meet_by_id(id, self).status().message());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50)); // it has sent, and nobody answers
  comm_error.set(Status::error(Code::kInvalidUsage, "aborted"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(start_root_on(std::move(doors->sockets), id.identity, {}).ok());
  const Result<Rendezvous> other = meet_by_id(id, attendant(0, 2, 5));
  aborted.join();
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.status().message(), "could not join: aborted"))
      << other.status().message();
}

TEST(Bootstrap, ARankThatDoesNotExistIsRefused) {
  for (const auto& [rank, nranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    const Result<Rendezvous> rendezvous = meet_by_id(UniqueId(), attendant(rank, nranks));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_EQ(Code::kInvalidArgument, rendezvous.status().code());
  }
}

} // namespace
} // namespace whorl
