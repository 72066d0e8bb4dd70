#include "comm/bootstrap.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/bootstrap_root.h"
#include "tests/unit/comm/bootstrap_ranks.h"

namespace whorl {
namespace {

class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedEnvironment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

SocketAddress loopback() { return SocketAddress::ipv4({127, 0, 0, 1}, 0); }

/// A port of this host at which nobody listens, and that the kernel gives to nobody else meanwhile.
class ReservedPort {
 public:
  ReservedPort() {
    const SocketAddress any = loopback();
    EXPECT_EQ(0, sys().setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, 1));
    EXPECT_EQ(0, sys().bind(socket_.get(), any.data(), any.size()));
  }
  SocketAddress address() const { return *bound_address(socket_.get()); }
  std::string text() const { return std::to_string(address().port()); }

 private:
  Fd socket_{sys().socket(AF_INET, SOCK_STREAM)};
};

/// A root on loopback and the id that leads to it.
UniqueId loopback_root(std::uint64_t patience_ns = 60'000'000'000) {
  Result<Fd> listener = listen_at(loopback());
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  UniqueId id;
  id.identity.job.fill(std::byte{1});
  id.identity.secret.fill(std::byte{2});
  id.addresses = {*bound_address(listener->get())};
  const Status started = start_root_on(*std::move(listener), id.identity, patience_ns);
  EXPECT_TRUE(started.ok()) << started.message();
  return id;
}

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
    if (i % 2 == 0) std::memcpy(bytes.data(), "WID1", 4); // past the first check
    EXPECT_FALSE(UniqueId::decode(bytes).ok());
  }
}

// --- meeting ---

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
    if (rank == 2) return; // hangs up
    std::vector<std::byte> mine(10);
    std::vector<std::byte> all(40);
    const Status status = rendezvous->oob->allgather(mine, all);
    EXPECT_EQ(Code::kRemoteError, status.code());
    EXPECT_TRUE(contains(status.message(), "rank 2 (host ")) << status.message();
  });
  EXPECT_LT(seconds_since(start), 10);
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
  EXPECT_TRUE(contains(text, "root of the rendezvous")) << text;
  EXPECT_TRUE(contains(text, id.addresses[0].text() + " (Connection refused)")) << text;
}

TEST(Bootstrap, AUsedUpIdIsNotWaitedFor) {
  const Result<UniqueId> id = start_root(); // with all addresses of this host
  ASSERT_TRUE(id.ok()) << id.status().message();
  meet(2, [&](int rank) { return meet_by_id(*id, attendant(rank, 2)); });
  const auto start = Clock::now();
  const Result<Rendezvous> rendezvous = meet_by_id(*id, attendant(1, 2, 60));
  ASSERT_FALSE(rendezvous.ok());
  const std::string& text = rendezvous.status().message();
  EXPECT_EQ(Code::kRemoteError, rendezvous.status().code());
  EXPECT_TRUE(contains(text, "has been used for a communicator before")) << text;
  EXPECT_TRUE(contains(text, id->addresses[0].text())) << text;
  EXPECT_LT(seconds_since(start), 30);
}

TEST(Bootstrap, ARankMayComeBeforeRank0ToAnAddress) {
  const ReservedPort later;
  const std::string where = "127.0.0.1:" + later.text();
  in_threads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const Result<Rendezvous> rendezvous = meet_by_address(where, attendant(rank, 2));
    EXPECT_TRUE(rendezvous.ok()) << rendezvous.status().message();
  });
}

TEST(Bootstrap, AVerdictEndsTheWaiting) {
  const UniqueId id = loopback_root();
  Verdict verdict;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    verdict.raise(Status::error(Code::kInvalidUsage, "aborted"));
  });
  Attendant self = attendant(0, 2);
  self.verdict = &verdict;
  const Result<Rendezvous> rendezvous = meet_by_id(id, self);
  other.join();
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_EQ("aborted", rendezvous.status().message());
}

TEST(Bootstrap, ARankThatDoesNotExistIsRefused) {
  for (const auto& [rank, nranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    const Result<Rendezvous> rendezvous = meet_by_id(UniqueId(), attendant(rank, nranks));
    ASSERT_FALSE(rendezvous.ok());
    EXPECT_EQ(Code::kInvalidArgument, rendezvous.status().code());
  }
}

// --- addresses ---

TEST(MeetByAddress, OnLoopbackWithoutASecret) {
  const ReservedPort reserved;
  const std::string port = reserved.text();
  for (int repetition = 0; repetition < 3; ++repetition) { // the port is free again each time
    meet(3, [&](int rank) {
      return meet_by_address((rank == 1 ? "localhost:" : "127.0.0.1:") + port, attendant(rank, 3));
    });
  }
}

TEST(MeetByAddress, OtherAddressesNeedASecret) {
  const Result<Rendezvous> refused = meet_by_address("192.0.2.77:4000", attendant(1, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(Code::kInvalidUsage, refused.status().code());
  EXPECT_TRUE(contains(refused.status().message(), "WHORL_SECRET_FILE"));
}

class SecretFile : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(0, ::chmod(path_.c_str(), mode));
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  Status try_it() {
    const ScopedEnvironment variable("WHORL_SECRET_FILE", path_);
    const ReservedPort reserved;
    const Result<Rendezvous> out =
        meet_by_address("127.0.0.1:" + reserved.text(), attendant(0, 1, 10));
    return out.status();
  }
  std::string path_ = testing::TempDir() + "whorl_secret_" + std::to_string(::getpid());
};

TEST_F(SecretFile, OpensAMeeting) {
  write("a secret of more than 16 bytes\n", 0600);
  const ReservedPort reserved;
  const std::string address = "127.0.0.1:" + reserved.text();
  const ScopedEnvironment variable("WHORL_SECRET_FILE", path_);
  meet(2, [&](int rank) { return meet_by_address(address, attendant(rank, 2)); });
}

TEST_F(SecretFile, KeepsOthersOut) {
  write("a secret of more than 16 bytes\n", 0600);
  const ReservedPort reserved;
  const std::string port = reserved.text();
  Verdict verdict;
  std::thread rank0;
  {
    const ScopedEnvironment variable("WHORL_SECRET_FILE", path_);
    rank0 = std::thread([&] {
      Attendant self = attendant(0, 2);
      self.verdict = &verdict;
      EXPECT_FALSE(meet_by_address("127.0.0.1:" + port, self).ok());
    });
    // Once the port is open, the environment has been read.
    const SocketAddress address = parse_address("127.0.0.1:" + port)->front();
    for (int i = 0; i < 5000; ++i) {
      const Fd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(probe.get(), address.data(), address.size()) == 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const Result<Rendezvous> other = meet_by_address("127.0.0.1:" + port, attendant(1, 2));
  verdict.raise(Status::error(Code::kInvalidUsage, "enough"));
  rank0.join();
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.status().message(), "wrong secret")) << other.status().message();
}

TEST_F(SecretFile, IsCheckedBeforeUse) {
  write("a secret of more than 16 bytes", 0640);
  EXPECT_TRUE(contains(try_it().message(), "chmod 600"));
  write("short", 0600);
  EXPECT_TRUE(contains(try_it().message(), "at least 16 bytes"));
  write(std::string(5000, 'x'), 0600);
  EXPECT_TRUE(contains(try_it().message(), "larger than"));
  ::unlink(path_.c_str());
  EXPECT_TRUE(contains(try_it().message(), "No such file"));
}

TEST(MeetByAddress, ABusyPortIsNamedWithTheRemedy) {
  const Result<Fd> busy = listen_at(loopback());
  const std::string address = bound_address(busy->get())->text();
  const Result<Rendezvous> rendezvous = meet_by_address(address, attendant(0, 2, 1));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), address)) << rendezvous.status().message();
  EXPECT_TRUE(contains(rendezvous.status().message(), "choose another port"));
}

// --- stores and all-gathers of the caller ---

struct MapStore {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;

  static int set(void* context, const char* key, const void* value, std::size_t size) {
    auto& self = *static_cast<MapStore*>(context);
    const std::lock_guard lock(self.mutex);
    self.values[key] = std::string(static_cast<const char*>(value), size);
    self.changed.notify_all();
    return 0;
  }
  static int get(void* context, const char* key, void* value, std::size_t capacity,
                 std::size_t* size, int timeout_ms) {
    auto& self = *static_cast<MapStore*>(context);
    std::unique_lock lock(self.mutex);
    if (!self.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                               [&] { return self.values.contains(key); })) {
      return 110;
    }
    const std::string& found = self.values.at(key);
    *size = found.size();
    std::memcpy(value, found.data(), std::min(capacity, found.size()));
    return 0;
  }
  Store store() { return {this, "job7/", &set, &get}; }
};

TEST(MeetByStore, AllRanks) {
  MapStore store;
  meet(4, [&](int rank) { return meet_by_store(store.store(), attendant(rank, 4)); });
}

TEST(MeetByStore, AnAbsentRankZeroIsNamed) {
  MapStore store;
  const Result<Rendezvous> rendezvous = meet_by_store(store.store(), attendant(1, 2, 0.05));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), "returned 110 for key job7/"));
}

TEST(MeetByStore, GarbageInTheStoreIsAnError) {
  MapStore store;
  store.values["job7/whorl/unique_id"] = std::string(128, 'x');
  EXPECT_FALSE(meet_by_store(store.store(), attendant(1, 2)).ok());
  store.values["job7/whorl/unique_id"] = "x";
  EXPECT_FALSE(meet_by_store(store.store(), attendant(1, 2)).ok());
}

/// An all-gather among threads, one context for each rank.
struct Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::byte>> rounds;
  std::vector<int> arrived;
};
struct TableContext {
  Table* table;
  int rank;
  int nranks;
  std::size_t round = 0;
  int shift = 0; ///< puts contributions in the wrong place
  static int allgather(void* context, const void* in, void* out, std::size_t size) {
    auto& self = *static_cast<TableContext*>(context);
    Table& table = *self.table;
    const auto nranks = static_cast<std::size_t>(self.nranks);
    std::unique_lock lock(table.mutex);
    const std::size_t round = self.round++;
    if (table.rounds.size() <= round) {
      table.rounds.resize(round + 1);
      table.arrived.resize(round + 1);
    }
    table.rounds[round].resize(size * nranks);
    const auto place = static_cast<std::size_t>((self.rank + self.shift) % self.nranks);
    std::memcpy(table.rounds[round].data() + place * size, in, size);
    ++table.arrived[round];
    table.changed.notify_all();
    if (!table.changed.wait_for(lock, std::chrono::seconds(20),
                                [&] { return table.arrived[round] == self.nranks; })) {
      return 1;
    }
    std::memcpy(out, table.rounds[round].data(), size * nranks);
    return 0;
  }
};

TEST(MeetByAllgather, AllRanks) {
  Table table;
  std::vector<TableContext> contexts;
  for (int rank = 0; rank < 5; ++rank) contexts.push_back({&table, rank, 5});
  meet(5, [&](int rank) {
    return meet_by_allgather({&contexts[static_cast<std::size_t>(rank)], &TableContext::allgather},
                             attendant(rank, 5));
  });
}

TEST(MeetByAllgather, AWrongOrderIsFound) {
  Table table;
  std::vector<TableContext> contexts;
  for (int rank = 0; rank < 2; ++rank) contexts.push_back({&table, rank, 2, 0, 1});
  std::atomic<int> found = 0;
  in_threads(2, [&](int rank) {
    const Result<Rendezvous> rendezvous = meet_by_allgather(
        {&contexts[static_cast<std::size_t>(rank)], &TableContext::allgather}, attendant(rank, 2));
    if (!rendezvous.ok() && contains(rendezvous.status().message(), "order")) ++found;
  });
  EXPECT_EQ(2, found);
}

TEST(MeetByAllgather, TheFunctionsErrorIsPassedOn) {
  const Allgather failing{nullptr, [](void*, const void*, void*, std::size_t) { return 7; }};
  const Result<Rendezvous> rendezvous = meet_by_allgather(failing, attendant(3, 4));
  ASSERT_FALSE(rendezvous.ok());
  EXPECT_TRUE(contains(rendezvous.status().message(), "rank 3 of 4"));
  EXPECT_TRUE(contains(rendezvous.status().message(), "returned 7"));
}

} // namespace
} // namespace whorl
