// Tests that strangers neither join nor disturb a rendezvous: other users of the host, idle
// connections, unused ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/support/intruders.h"
#include "tests/support/until.h"
#include "tests/unit/bootstrap/support.h"

namespace whorl {
namespace {

using test::FewFiles;
using test::Other;
using test::with_idle_connections;

using testing::AllOf;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

// --- other users ---

class OtherUser : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  }
  /// Returns a function that joins as rank 1 of 2 and returns the error for the other user.
  std::function<std::string()> joining(bool insecure) {
    return [this, insecure] {
      if (insecure) ::setenv("WHORL_INSECURE", "1", 1);
      const Result<Rendezvous> met = meet_by_address(where_, attendant(1, 2, 20));
      return met.ok() ? std::string("has joined") : met.status().message();
    };
  }
  /// Runs rank 0 in a thread, which waits until the test raises the error.
  std::thread rank0(CommError* comm_error) {
    return std::thread([this, comm_error] {
      Attendant self = attendant(0, 2);
      self.comm_error = comm_error;
      met_ = meet_by_address(where_, self).ok();
    });
  }
  const ReservedPort reserved_;
  const std::string where_ = "127.0.0.1:" + reserved_.text();
  bool met_ = false;
};

TEST_F(OtherUser, HearsWhoseRendezvousThisIs) {
  Other other(joining(false), kNobody);
  CommError comm_error;
  std::thread first = rank0(&comm_error);
  EXPECT_THAT(
      other.run(),
      AllOf(HasSubstr(where_), HasSubstr("of user 0 (pid " + std::to_string(::getpid()) + ")"),
            HasSubstr("this rank runs as user 65534"), HasSubstr("WHORL_SECRET_FILE")));
  // Rank 0 is undisturbed: the right rank 1 meets it.
  const Result<Rendezvous> second = meet_by_address(where_, attendant(1, 2));
  EXPECT_TRUE(second.ok()) << second.status().message();
  first.join();
  EXPECT_TRUE(met_);
}

TEST_F(OtherUser, IsTurnedAwayByTheRoot) {
  Other other(joining(true), kNobody); // skips the check of the rendezvous's owner
  CommError comm_error;
  std::thread first = rank0(&comm_error);
  EXPECT_THAT(other.run(), AllOf(HasSubstr("wrong user (says the other side)"),
                                 HasSubstr("WHORL_SECRET_FILE"), HasSubstr("WHORL_INSECURE=1")));
  const Result<Rendezvous> second = meet_by_address(where_, attendant(1, 2));
  EXPECT_TRUE(second.ok()) << second.status().message();
  first.join();
  EXPECT_TRUE(met_);
}

TEST_F(OtherUser, JoinsWhereThatIsAllowed) {
  Other other(joining(true), kNobody);
  const ScopedEnv insecure{{"WHORL_INSECURE", "1"}};
  CommError comm_error;
  std::thread first = rank0(&comm_error);
  EXPECT_EQ("has joined", other.run());
  first.join();
  EXPECT_TRUE(met_);
}

TEST_F(OtherUser, GetsNothingByTakingThePortFirst) {
  Fd squatting;
  const SocketAddress name = SocketAddress::unix_name("whorl." + reserved_.text());
  Other other(
      [&] {
        Result<Fd> socket = listen_at(name);
        if (!socket.ok()) return socket.status().message();
        squatting = *std::move(socket);
        return std::string("listening");
      },
      kNobody);
  ASSERT_EQ("listening", other.run());
  const std::string who = "user 65534 (pid " + std::to_string(other.pid()) + ")";
  for (const int rank : {0, 1}) {
    const Result<Rendezvous> met = meet_by_address(where_, attendant(rank, 2, 20));
    ASSERT_FALSE(met.ok());
    EXPECT_THAT(met.status().message(),
                AllOf(HasSubstr(where_), HasSubstr(who), HasSubstr("choose another port")));
  }
}

// --- idle connections ---

TEST(IdleConnections, DoNotKeepRanksFromTheRootsPort) {
  const FewFiles few(1024);
  const UniqueId id = loopback_root();
  with_idle_connections(id.addresses.front(), [&] {
    meet(4, [&](int rank) { return meet_by_id(id, attendant(rank, 4)); });
  });
}

TEST(IdleConnections, DoNotKeepRanksFromTheRootsName) {
  const FewFiles few(1024);
  const Result<UniqueId> id = start_root(RootScope::kThisHost);
  ASSERT_TRUE(id.ok()) << id.status().message();
  with_idle_connections(id->addresses.front(), [&] {
    meet(4, [&](int rank) { return meet_by_id(*id, attendant(rank, 4)); });
  });
}

// --- unused ids ---

/// Returns the threads of this process that are roots.
std::set<std::string> roots() {
  std::set<std::string> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "whorl-root") out.insert(task.path().filename());
  }
  return out;
}

TEST(UnusedId, KeepsNeitherThreadNorPort) {
  const std::set<std::string> before = roots();
  const Result<UniqueId> id = start_root(RootScope::kAnywhere, 50'000'000);
  ASSERT_TRUE(id.ok()) << id.status().message();
  const auto has_ended = [&] {
    for (const std::string& root : roots()) {
      if (!before.contains(root)) return false;
    }
    return true;
  };
  test::until(has_ended);
  for (const SocketAddress& address : id->addresses) {
    const Fd probe(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_NE(0, ::connect(probe.get(), address.data(), address.size())) << address.text();
  }
  const Result<Rendezvous> late = meet_by_id(*id, attendant(0, 2, 60));
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.status().message(),
              AllOf(HasSubstr("within an hour"), HasSubstr("call whorlGetUniqueId()")));
}

} // namespace
} // namespace whorl
