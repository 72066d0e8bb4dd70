// Tests of WHORL_ENCRYPT=1 against an attacker on the path of every connection: who listens reads
// nothing, who changes bytes is found out by every rank, and nobody sends unencrypted by mistake.
#include <fmt/core.h>

#include <barrier>
#include <chrono>

#include "bootstrap/host.h"
#include "bootstrap/identity.h"
#include "bootstrap/root.h"
#include "tests/security/every_path.h"
#include "tests/security/world.h"
#include "tests/support/until.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using Bytes = Relay::Bytes;
using Clock = std::chrono::steady_clock;

/// Settings of ranks that are threads and reach each other by TCP only, at an address where the
/// attacker is.
ScopedEnv over_tcp(bool encrypts) {
  return {{"WHORL_TRANSPORTS", "tcp"},
          {"WHORL_HOST_ADDRESS", "127.0.0.1"},
          {"WHORL_ENCRYPT", encrypts ? "1" : ""}};
}

bool contains(const Bytes& all, std::string_view part) {
  const auto bytes = std::as_bytes(std::span(part));
  return std::search(all.begin(), all.end(), bytes.begin(), bytes.end()) != all.end();
}

std::string name_of_host() {
  std::array<char, 65> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Waits until more than a handshake has gone over the connections with a role.
void wait_for(const EveryPath& attacker, SocketRole role) {
  until([&] { return attacker.recorded(role).size() > EveryPath::kBytesOfHandshake; });
}

class EncryptionOnOff : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Encryption, EncryptionOnOff, ::testing::Bool());

TEST_P(EncryptionOnOff, HidesDataNamesAndNoSecretIsOnTheWire) {
  const bool encrypts = GetParam();
  const ScopedEnv env = over_tcp(encrypts);
  EveryPath attacker;
  const UniqueId id = make_id();
  const std::string pattern = "the gradients of somebody's model";
  EXPECT_EQ(join_all(attacker.through(id), 2,
                     [&](whorlComm_t comm) {
                       for (const std::size_t copies : {1U, 10'000U}) {
                         std::string data;
                         for (std::size_t i = 0; i < copies; ++i) data += pattern;
                         EXPECT_EQ(failure(whorlBroadcast(data.data(), data.data(), data.size(),
                                                          whorlInt8, 0, comm, nullptr),
                                           comm),
                                   "");
                         EXPECT_EQ(data.substr(0, pattern.size()), pattern);
                       }
                     }),
            "");
  wait_for(attacker, SocketRole::kControl); // the goodbyes may be on their way
  const Bytes data = attacker.recorded(SocketRole::kData);
  const Bytes control = attacker.recorded(SocketRole::kControl);
  const Bytes rendezvous = attacker.recorded(SocketRole::kBootstrap);
  EXPECT_GT(data.size(), 10'000 * pattern.size());
  EXPECT_GT(control.size(), EveryPath::kBytesOfHandshake);
  EXPECT_EQ(contains(data, pattern), !encrypts);
  EXPECT_EQ(contains(data, pattern.substr(0, 8)), !encrypts);
  EXPECT_EQ(contains(control, "whrv"), !encrypts) << "the magic number of control frames";
  EXPECT_EQ(contains(rendezvous, "host " + name_of_host()), !encrypts);
  EXPECT_EQ(contains(rendezvous, fmt::format("pid {}", ::getpid())), !encrypts);
  for (const Bytes& all : {data, control, rendezvous}) {
    EXPECT_FALSE(contains(all, {reinterpret_cast<const char*>(id.identity.secret.data()), 8}));
  }
}

/// Attack on one connection of a role, once it is armed: a bit of what passes is flipped, at the
/// end, which is a tag, or where a length of 4 KiB less is enlarged.
struct FlipOnce {
  SocketRole role;
  bool to_target;
  bool enlarges;
  std::atomic<bool> armed{false};
  std::atomic<bool> flipped{false};

  void operator()(const EveryPath::Passing& passing) {
    if (passing.role != role || passing.to_target != to_target) return;
    if (!armed.exchange(false)) return;
    (enlarges ? passing.bytes[1] : passing.bytes.back()) ^= std::byte{0x10};
    flipped = true;
  }
};

/// Calls collectives until they fail, and returns the error. The attack is armed after the first
/// one. The first and the last rank make the others wait in turn, who send and read beats then.
std::string error_under(FlipOnce& attack, int rank, int nranks, whorlComm_t comm) {
  std::vector<float> values(1000);
  for (int call = 0; call < 20; ++call) {
    if (call == 1 && rank == 0) attack.armed = true;
    if (rank == (call % 2 == 0 ? nranks - 1 : 0)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    const std::string error = failure(whorlAllReduce(values.data(), values.data(), values.size(),
                                                     whorlFloat32, whorlSum, comm, nullptr),
                                      comm);
    if (!error.empty()) return error;
  }
  return {};
}

class ChangedOnTheWay : public ::testing::TestWithParam<std::tuple<SocketRole, bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Connections, ChangedOnTheWay,
                         ::testing::Combine(::testing::Values(SocketRole::kData,
                                                              SocketRole::kControl),
                                            ::testing::Bool(), ::testing::Bool()));

TEST_P(ChangedOnTheWay, EndsTheCommunicatorOnEveryRank) {
  constexpr int kRanks = 3;
  const ScopedEnv env = over_tcp(true);
  const auto [role, to_target, enlarges] = GetParam();
  FlipOnce attack{role, to_target, enlarges};
  EveryPath attacker([&](const EveryPath::Passing& passing) { attack(passing); });
  const UniqueId id = attacker.through(make_id());
  const auto start = Clock::now();
  const auto errors = errors_of(kRanks, [&](int rank) {
    std::string error;
    join(id, rank, kRanks, 30'000,
         [&](whorlComm_t comm) { error = error_under(attack, rank, kRanks, comm); });
    return error;
  });
  EXPECT_TRUE(attack.flipped);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, ::testing::ContainsRegex(
                           "what rank [012] .*has sent to rank [012] .*was changed on the way"));
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20)) << "no rank has waited for its timeout";
}

TEST(HeldBack, ForEverEndsAtTheDeadlineOfTheOperation) {
  const ScopedEnv env = over_tcp(true);
  std::atomic<bool> holds{false}, ends{false};
  std::barrier both(2); // until then either rank may still be in the first operation
  EveryPath attacker([&](const EveryPath::Passing& passing) {
    while (holds && passing.role == SocketRole::kData && !ends) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const UniqueId id = attacker.through(make_id());
  const auto start = Clock::now();
  const auto errors = errors_of(2, [&](int rank) {
    std::string error;
    join(id, rank, 2, 2000, [&](whorlComm_t comm) {
      EXPECT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      both.arrive_and_wait();
      holds = true;
      error = failure(whorlBarrier(comm, nullptr), comm);
    });
    return error;
  });
  ends = true;
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

class ChangedRendezvous : public ::testing::TestWithParam<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Directions, ChangedRendezvous,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_P(ChangedRendezvous, EndsForEveryRank) {
  constexpr int kRanks = 3;
  const ScopedEnv env = over_tcp(true);
  const auto [to_target, enlarges] = GetParam();
  FlipOnce attack{SocketRole::kBootstrap, to_target, enlarges};
  attack.armed = true;
  EveryPath attacker([&](const EveryPath::Passing& passing) { attack(passing); });
  const UniqueId id = attacker.through(make_id());
  const auto start = Clock::now();
  const auto errors = errors_of(kRanks, [&](int rank) { return join(id, rank, kRanks); });
  EXPECT_TRUE(attack.flipped);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("was changed on the way"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20)) << "no rank has waited for its timeout";
}

/// Kind of a root.
enum class RootKind { kOfAnId, kOfAMeetingPoint, kOfRanksThatMeetAgain };

/// Starts a root, and returns the id that leads to it.
UniqueId start(RootKind kind) {
  const Identity identity = *make_identity();
  RootDoors doors = *open_root_doors(RootScope::kAnywhere);
  if (kind == RootKind::kOfAMeetingPoint) {
    const auto find_secret = [identity](Identity& asked) {
      asked.secret = identity.secret;
      return asked.job == identity.job;
    };
    const auto host = std::make_shared<bootstrap::Host>(std::move(doors.sockets), find_secret);
    EXPECT_TRUE(bootstrap::launch(host).ok());
  } else {
    const bool again = kind == RootKind::kOfRanksThatMeetAgain;
    const RootTerms terms{.port_is_users = again, .meets_again = again};
    EXPECT_TRUE(start_root_on(std::move(doors.sockets), identity, terms).ok());
  }
  return {identity, {outer_address(doors.addresses)}};
}

/// Whether the root and rank 0 encrypt, and rank 1 does not, or the other way round; which rank
/// comes first; the kind of the root.
class OtherSetting : public ::testing::TestWithParam<std::tuple<bool, int, RootKind>> {};
INSTANTIATE_TEST_SUITE_P(Encryption, OtherSetting,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(0, 1),
                                            ::testing::Values(RootKind::kOfAnId,
                                                              RootKind::kOfAMeetingPoint,
                                                              RootKind::kOfRanksThatMeetAgain)));

TEST_P(OtherSetting, OfOneRankIsAnErrorOfAll) {
  const auto [root_encrypts, first, kind] = GetParam();
  EveryPath attacker;
  UniqueId id;
  std::array<std::string, 2> errors;
  std::thread rank0;
  const auto begin = Clock::now();
  const auto join_rank1 = [&, encrypts = !root_encrypts] {
    const ScopedEnv env = over_tcp(encrypts);
    errors[1] = join(id, 1, 2);
  };
  {
    const ScopedEnv env = over_tcp(root_encrypts);
    id = attacker.through(start(kind));
    if (first == 1) join_rank1();
    rank0 = std::thread([&] { errors[0] = join(id, 0, 2); });
    wait_for(attacker, SocketRole::kBootstrap);
    if (first == 1) rank0.join();
  }
  if (first == 0) {
    join_rank1();
    rank0.join();
  }
  const std::string settings =
      fmt::format("WHORL_ENCRYPT is {} at rank 1 and {} at the root of the rendezvous",
                  root_encrypts ? 0 : 1, root_encrypts ? 1 : 0);
  EXPECT_THAT(errors[1], HasSubstr("rank 1 cannot connect to the root of the rendezvous"));
  EXPECT_THAT(errors[1], HasSubstr(settings));
  EXPECT_THAT(errors[1], HasSubstr("set it alike for all ranks"));
  EXPECT_THAT(errors[0], HasSubstr("does not let rank 1 join: " + settings));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20)) << "no rank has waited for its timeout";
}

TEST(Encryption, ExcludesUnencryptedTransports) {
  const ScopedEnv env{{"WHORL_TRANSPORTS", "shm,verbs,tcp"}, {"WHORL_ENCRYPT", "1"}};
  EXPECT_THAT(join(make_id(), 0, 1), HasSubstr("take verbs out of the list"));
}

} // namespace
} // namespace whorl::test
