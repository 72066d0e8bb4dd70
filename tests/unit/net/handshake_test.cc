#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "net/handshake.h"
#include "tests/support/identity.h"

namespace whorl {
namespace {

using test::identity_of;

std::pair<Fd, Fd> socket_pair() {
  int fds[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
  return {Fd(fds[0]), Fd(fds[1])};
}

const ConnectionName kName{3, 5, SocketRole::kData, 1};

/// Both sides of a handshake.
struct Halves {
  Handshake connecting, accepting;
};

/// Settings of the two sides, which fit together if none is given.
struct Settings {
  Identity accepting = identity_of(1, 2), connecting = identity_of(1, 2);
  std::uint32_t accepting_rank = 5;
  bool connecting_encrypts = false, accepting_encrypts = false;
};

Halves make_halves(const Settings& sides = {}) {
  auto [c, a] = socket_pair();
  return {Handshake::connecting(std::move(c), sides.connecting, kName, sides.connecting_encrypts),
          Handshake::accepting(std::move(a), sides.accepting, sides.accepting_rank,
                               sides.accepting_encrypts)};
}

/// Runs both sides until neither advances.
void run(Handshake& a, Handshake& b) {
  for (int i = 0; i < 100; ++i) {
    a.step();
    if (b.step() == Progress::kAdvanced) b.admit();
  }
}

/// Returns the failure of an accepting side that receives the given bytes.
HandshakeFailure accept_bytes(const std::vector<std::byte>& bytes, std::size_t piece = 4096) {
  auto [ours, theirs] = socket_pair();
  Handshake accepting = Handshake::accepting(std::move(ours), identity_of(1, 2), 5);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::size_t size = std::min(piece, bytes.size() - at);
    if (::send(theirs.get(), bytes.data() + at, size, MSG_NOSIGNAL) < 0) break;
    if (accepting.step() == Progress::kAdvanced) accepting.admit();
    accepting.step();
  }
  return accepting.failure();
}

/// Returns all bytes that one side of a good handshake has sent.
std::vector<std::byte> recorded_hello() {
  auto [ours, theirs] = socket_pair();
  Handshake connecting = Handshake::connecting(std::move(ours), identity_of(1, 2), kName);
  connecting.step();
  std::vector<std::byte> bytes(1024);
  const ssize_t got = ::recv(theirs.get(), bytes.data(), bytes.size(), 0);
  EXPECT_GT(got, 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

TEST(Handshake, AuthenticatesBothSidesAndLeavesWhatFollowsInTheSocket) {
  auto [connecting, accepting] = make_halves();
  run(connecting, accepting);
  ASSERT_EQ(Progress::kDone, connecting.step()) << connecting.status().message();
  ASSERT_EQ(Progress::kDone, accepting.step()) << accepting.status().message();
  EXPECT_TRUE(connecting.peer_proved());
  EXPECT_EQ(kName, accepting.name());
  const StreamSocket c2 = connecting.take();
  const StreamSocket a2 = accepting.take();
  char byte = 'x';
  ASSERT_EQ(1, ::send(c2.get(), &byte, 1, 0));
  byte = 0;
  ASSERT_EQ(1, ::recv(a2.get(), &byte, 1, 0));
  EXPECT_EQ('x', byte);
  EXPECT_EQ(-1, ::recv(c2.get(), &byte, 1, 0));
}

TEST(Handshake, DataSentAtOnceAfterTheHandshakeIsNotEaten) {
  auto [connecting, accepting] = make_halves();
  connecting.step();
  ASSERT_EQ(Progress::kAdvanced, accepting.step());
  accepting.admit();
  accepting.step();
  connecting.step(); // sends the proof
  ASSERT_EQ(3, ::send(connecting.fd(), "abc", 3, 0));
  ASSERT_EQ(Progress::kDone, accepting.step());
  char text[8] = {};
  EXPECT_EQ(3, ::recv(accepting.fd(), text, sizeof text, 0));
  EXPECT_STREQ("abc", text);
}

TEST(Handshake, BothSidesNameAWrongSecret) {
  auto [connecting, accepting] = make_halves({.accepting = identity_of(1, 9)});
  run(connecting, accepting);
  EXPECT_EQ(HandshakeFailure::kSecret, connecting.failure());
  EXPECT_EQ(HandshakeFailure::kSecret, accepting.failure());
  EXPECT_FALSE(connecting.peer_proved());
  EXPECT_NE(std::string::npos, connecting.status().message().find("wrong secret"));
  EXPECT_NE(std::string::npos, accepting.status().message().find("says the other side"));
}

/// Ends the process when the proof of the connecting side is on its way, and goes on with the
/// handshake when OpenSSL has been left for good.
[[noreturn]] void exit_in_a_handshake() {
  static Halves* const halves = new Halves; // never destroyed
  std::atexit([] {                          // before OpenSSL is used: called after its handler
    halves->accepting.step();
    halves->connecting.step();
    const bool failed = halves->accepting.failure() != HandshakeFailure::kNone;
    const bool misled = halves->accepting.failure() == HandshakeFailure::kSecret ||
                        halves->connecting.failure() == HandshakeFailure::kSecret;
    ::_exit(failed && !misled ? 0 : 1);
  });
  *halves = make_halves();
  halves->connecting.step();
  if (halves->accepting.step() == Progress::kAdvanced) halves->accepting.admit();
  halves->accepting.step();
  halves->connecting.step();
  std::exit(2);
}

TEST(HandshakeDeathTest, AProcessThatEndsDoesNotCallTheSecretOfTheOtherSideWrong) {
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // a process that has not used OpenSSL
  EXPECT_EXIT(exit_in_a_handshake(), ::testing::ExitedWithCode(0), "");
}

TEST(Handshake, BothSidesNameAWrongJob) {
  auto [connecting, accepting] = make_halves({.connecting = identity_of(7, 2)});
  run(connecting, accepting);
  EXPECT_EQ(HandshakeFailure::kJob, connecting.failure());
  EXPECT_EQ(HandshakeFailure::kJob, accepting.failure());
  EXPECT_NE(std::string::npos, connecting.status().message().find("wrong job"));
}

TEST(Handshake, BothSidesNameAWrongRank) {
  auto [connecting, accepting] = make_halves({.accepting_rank = 6});
  run(connecting, accepting);
  EXPECT_EQ(HandshakeFailure::kName, connecting.failure());
  EXPECT_EQ(HandshakeFailure::kName, accepting.failure());
}

TEST(Handshake, RefusalReachesTheOtherSide) {
  auto [connecting, accepting] = make_halves();
  connecting.step();
  ASSERT_EQ(Progress::kAdvanced, accepting.step());
  accepting.refuse(HandshakeFailure::kName);
  connecting.step();
  EXPECT_EQ(HandshakeFailure::kName, connecting.failure());
}

TEST(Handshake, BothSidesNameADisagreementAboutEncryption) {
  for (const bool connecting_encrypts : {false, true}) {
    auto [connecting, accepting] = make_halves(
        {.connecting_encrypts = connecting_encrypts, .accepting_encrypts = !connecting_encrypts});
    run(connecting, accepting);
    EXPECT_EQ(HandshakeFailure::kEncryption, connecting.failure());
    EXPECT_EQ(HandshakeFailure::kEncryption, accepting.failure());
    const std::string settings = connecting_encrypts
                                     ? "WHORL_ENCRYPT is 1 at rank 3 and 0 at rank 5"
                                     : "WHORL_ENCRYPT is 0 at rank 3 and 1 at rank 5";
    for (const Handshake* const side : {&connecting, &accepting}) {
      EXPECT_NE(std::string::npos, side->status().message().find(settings));
    }
    EXPECT_NE(std::string::npos, accepting.status().message().find("set it alike"));
  }
}

TEST(Handshake, AStrangerCannotClaimADisagreementAboutEncryption) {
  auto [connecting, accepting] =
      make_halves({.accepting = identity_of(1, 9), .connecting_encrypts = true});
  run(connecting, accepting);
  EXPECT_EQ(HandshakeFailure::kSecret, connecting.failure());
  EXPECT_EQ(HandshakeFailure::kSecret, accepting.failure());
}

TEST(Handshake, EncryptsWhatFollowsIfBothSidesWish) {
  auto [connecting, accepting] =
      make_halves({.connecting_encrypts = true, .accepting_encrypts = true});
  run(connecting, accepting);
  ASSERT_EQ(Progress::kDone, connecting.step()) << connecting.status().message();
  ASSERT_EQ(Progress::kDone, accepting.step()) << accepting.status().message();
  StreamSocket one = connecting.take();
  StreamSocket other = accepting.take();
  EXPECT_TRUE(one.encrypts() && other.encrypts());
  const std::string text = "a secret message";
  std::string received(text.size(), ' ');
  for (const bool back : {false, true}) {
    StreamSocket& from = back ? other : one;
    StreamSocket& to = back ? one : other;
    ASSERT_EQ(static_cast<ssize_t>(text.size()), from.send(std::as_bytes(std::span(text))));
    std::string wire(256, ' ');
    const ssize_t seen = ::recv(to.get(), wire.data(), wire.size(), MSG_PEEK);
    EXPECT_GT(seen, static_cast<ssize_t>(text.size()));
    EXPECT_EQ(std::string::npos, wire.find("secret"));
    ASSERT_EQ(static_cast<ssize_t>(text.size()),
              to.receive(std::as_writable_bytes(std::span(received))));
    EXPECT_EQ(text, received);
  }
  EXPECT_FALSE(one.take().valid()) << "whoever has the descriptor alone would not encrypt";
  EXPECT_TRUE(one.valid());
}

TEST(Handshake, NamesAnotherVersion) {
  std::vector<std::byte> hello = recorded_hello();
  hello[4] = std::byte{77};
  EXPECT_EQ(HandshakeFailure::kVersion, accept_bytes(hello));
}

TEST(Handshake, RecognisesGarbageByItsFirstBytes) {
  EXPECT_EQ(HandshakeFailure::kProtocol, accept_bytes({std::byte{'G'}}));
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(http));
  EXPECT_EQ(HandshakeFailure::kProtocol, accept_bytes({bytes.begin(), bytes.end()}));
}

TEST(Handshake, SurvivesEveryDripAndTruncation) {
  const std::vector<std::byte> hello = recorded_hello();
  EXPECT_EQ(HandshakeFailure::kNone, accept_bytes(hello, 1)); // still waits for the proof
  for (std::size_t size = 0; size < hello.size(); ++size) {
    auto [ours, theirs] = socket_pair();
    Handshake accepting = Handshake::accepting(std::move(ours), identity_of(1, 2), 5);
    ASSERT_EQ(static_cast<ssize_t>(size), ::send(theirs.get(), hello.data(), size, 0));
    EXPECT_EQ(Progress::kIdle, accepting.step());
    theirs.reset();
    EXPECT_EQ(Progress::kFailed, accepting.step());
    EXPECT_EQ(HandshakeFailure::kClosed, accepting.failure());
  }
}

TEST(Handshake, RefusesReplayedBytes) {
  // Records hello and proof of a good handshake, then sends them to a new accepting side.
  auto [connecting, accepting] = make_halves();
  std::vector<std::byte> tape(1024);
  connecting.step();
  ssize_t size = ::recv(accepting.fd(), tape.data(), tape.size(), MSG_PEEK);
  ASSERT_GT(size, 0);
  ASSERT_EQ(Progress::kAdvanced, accepting.step());
  accepting.admit();
  accepting.step();
  connecting.step();
  const ssize_t proof = ::recv(accepting.fd(), tape.data() + size,
                               tape.size() - static_cast<std::size_t>(size), MSG_PEEK);
  ASSERT_GT(proof, 0);
  ASSERT_EQ(Progress::kDone, accepting.step());
  tape.resize(static_cast<std::size_t>(size + proof));
  EXPECT_EQ(HandshakeFailure::kSecret, accept_bytes(tape));
}

TEST(Handshake, DoesNotAcceptItsOwnMessagesAsAnAnswer) {
  auto [ours, theirs] = socket_pair();
  Handshake connecting = Handshake::connecting(std::move(ours), identity_of(1, 2), kName);
  connecting.step();
  std::vector<std::byte> bytes(1024);
  const ssize_t got = ::recv(theirs.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(got, 0);
  ASSERT_EQ(got, ::send(theirs.get(), bytes.data(), static_cast<std::size_t>(got), 0));
  EXPECT_EQ(Progress::kFailed, connecting.step());
  EXPECT_EQ(HandshakeFailure::kProtocol, connecting.failure());
}

class HandshakeOnPath : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Encryption, HandshakeOnPath, ::testing::Bool());

TEST_P(HandshakeOnPath, EveryChangedByteIsFatalToTheHandshake) {
  // One bit of any of the three messages is flipped on the way; the two sides never both succeed.
  for (int message = 0; message < 6; ++message) {
    const std::byte bit = message < 3 ? std::byte{0x10} : std::byte{1};
    for (std::size_t at = 0;; ++at) {
      auto [c, near] = socket_pair();
      auto [far, a] = socket_pair();
      Handshake connecting =
          Handshake::connecting(std::move(c), identity_of(1, 2), kName, GetParam());
      Handshake accepting = Handshake::accepting(std::move(a), identity_of(1, 2), 5, GetParam());
      bool past_the_end = false;
      bool changed_ignored_byte = false;
      const auto carry = [&](int from, int to, bool flip) {
        std::byte bytes[512];
        const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
        if (got <= 0) return;
        if (flip && at >= static_cast<std::size_t>(got)) past_the_end = true;
        // The padding of the proof's first word is not checked.
        if (flip && message % 3 == 2 && at >= 1 && at < 4) changed_ignored_byte = true;
        if (flip && !past_the_end) bytes[at] ^= bit;
        EXPECT_EQ(got, ::send(to, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL));
      };
      connecting.step();
      carry(near.get(), far.get(), message % 3 == 0);
      if (accepting.step() == Progress::kAdvanced) accepting.admit();
      accepting.step();
      carry(far.get(), near.get(), message % 3 == 1);
      connecting.step();
      carry(near.get(), far.get(), message % 3 == 2);
      const Progress accepted = accepting.step();
      if (past_the_end) break;
      if (!changed_ignored_byte) {
        EXPECT_NE(Progress::kDone, accepted) << "message " << message << " byte " << at;
      }
    }
  }
}

TEST(Handshake, GivesUpOnASilentPeerAfterItsPatience) {
  class Clock final : public System {
   public:
    std::uint64_t now_ns() noexcept override { return now; }
    std::uint64_t now = 1'000'000'000;
  } clock;
  const ScopedSystem scope(&clock);
  auto [ours, theirs] = socket_pair();
  Handshake accepting = Handshake::accepting(std::move(ours), identity_of(1, 2), 5);
  EXPECT_EQ(Progress::kIdle, accepting.step());
  clock.now += Handshake::kTimeoutNs + 1;
  EXPECT_EQ(Progress::kFailed, accepting.step());
  EXPECT_EQ(HandshakeFailure::kSlow, accepting.failure());
}

} // namespace
} // namespace whorl
