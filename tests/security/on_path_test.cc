// Tests of an attacker on the path between a rank and the root, who records, repeats and changes
// what they send: nobody joins without the secret, and every rank is told the cause.
#include "net/handshake.h"
#include "tests/security/world.h"
#include "tests/support/relay.h"
#include "tests/support/until.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using Bytes = Relay::Bytes;

// Bytes of the connecting side's hello and proof, and of the accepting side's challenge.
constexpr std::size_t kHello = 104, kProof = 36, kChallenge = 108;
constexpr std::size_t kFlagsAt = 36, kNonceAt = 40, kAnswerNonceAt = 12;
constexpr std::size_t kVersionAt = 4, kJobAt = 8;
constexpr int kRefusedMs = 1000; ///< timeout of ranks that try again while another refuses them

/// Sends bytes on a new connection, and returns the first `most` that come back; fewer if the other
/// side hangs up or is silent for 3 s.
Bytes say(const SocketAddress& address, std::span<const std::byte> bytes, std::size_t most) {
  const Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(0, ::connect(socket.get(), address.data(), address.size()));
  EXPECT_EQ(static_cast<ssize_t>(bytes.size()),
            ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  Bytes answer(most);
  std::size_t got = 0;
  while (got < most) {
    constexpr int kPatienceMs = 3000;
    pollfd ready{socket.get(), POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) <= 0) break;
    const ssize_t more = ::recv(socket.get(), answer.data() + got, most - got, 0);
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  answer.resize(got);
  return answer;
}

TEST(OnPath, ARecordedHandshakeDoesNotJoinAgain) {
  const UniqueId id = make_id();
  Relay relay(id.addresses.front());
  UniqueId by_relay = id;
  by_relay.addresses = {relay.address()};
  // Rank 0 joins through the relay and waits for rank 1.
  std::string error;
  std::thread rank0([&] { error = join(by_relay, 0, 2); });
  until([&] { return relay.sent(0).size() >= kHello + kProof; });
  const Bytes recorded = relay.sent(0);
  ASSERT_GE(recorded.size(), kHello + kProof);
  // The root challenges the same hello anew, so the recorded proof is wrong.
  const Bytes answer =
      say(id.addresses.front(), std::span(recorded).first(kHello + kProof), kChallenge + 4);
  ASSERT_EQ(answer.size(), kChallenge + 4);
  EXPECT_EQ(answer[kChallenge], static_cast<std::byte>(HandshakeFailure::kSecret));
  EXPECT_NE(
      0, std::memcmp(answer.data() + kAnswerNonceAt, relay.answered(0).data() + kAnswerNonceAt, 32))
      << "the nonce";
  EXPECT_EQ(join(id, 1, 2), "") << "the right rank 1 meets rank 0 all the same";
  rank0.join();
  EXPECT_EQ(error, "");
}

TEST(OnPath, ARankDoesNotTakeItsOwnHelloForTheRoot) {
  UniqueId id = make_id();
  const Result<Fd> listener = listen_at(SocketAddress::ipv4({127, 0, 0, 1}, 0));
  ASSERT_TRUE(listener.ok());
  id.addresses = {*bound_address(listener->get())};
  std::atomic<bool> done{false};
  std::thread mirror([&] { // sends back what comes
    std::vector<Fd> open;
    while (!done) {
      open.emplace_back(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!open.back().valid()) open.pop_back();
      for (const Fd& socket : open) {
        std::array<std::byte, 256> bytes;
        const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got > 0)
          ::send(socket.get(), bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_THAT(join(id, 1, 2, kRefusedMs), HasSubstr("does not speak whorl's protocol"));
  done = true;
  mirror.join();
}

/// Returns rank 1's error where the relay changes one byte of the hello, or of the challenge.
std::string error_with_change(std::size_t at, std::byte flip, bool of_hello = true) {
  const UniqueId id = make_id();
  Relay relay(id.addresses.front(),
              [&](bool to_root, std::size_t offset, std::span<std::byte> part) {
                if (to_root == of_hello && at >= offset && at - offset < part.size())
                  part[at - offset] ^= flip;
              });
  UniqueId by_relay = id;
  by_relay.addresses = {relay.address()};
  return join(by_relay, 1, 2, kRefusedMs);
}

TEST(OnPath, AnotherVersionIsRefusedByName) {
  EXPECT_THAT(error_with_change(kVersionAt, std::byte{1}), HasSubstr("wire version"));
}

TEST(OnPath, AnotherJobIsRefusedByName) {
  EXPECT_THAT(error_with_change(kJobAt, std::byte{1}), HasSubstr("wrong job"));
}

TEST(OnPath, AChangedNonceIsAWrongSecret) {
  EXPECT_THAT(error_with_change(kNonceAt, std::byte{1}), HasSubstr("wrong secret"));
}

/// An attacker who says for a rank that it encrypts, or does not, is found out.
TEST(OnPath, AChangedWishForEncryptionIsAWrongSecret) {
  constexpr std::size_t kFlagsOfChallengeAt = 8;
  for (const char* const encrypts : {"", "1"}) {
    const ScopedEnv env{{"WHORL_ENCRYPT", encrypts}};
    EXPECT_THAT(error_with_change(kFlagsAt, std::byte{1}), HasSubstr("wrong secret"));
    EXPECT_THAT(error_with_change(kFlagsOfChallengeAt, std::byte{1}, false),
                HasSubstr("wrong secret"));
  }
}

/// A rank of an earlier run comes to the port, where the root of another job listens now.
TEST(OnPath, AnIdOfAnotherRunIsRefusedByName) {
  const UniqueId now = make_id();
  UniqueId stale = make_id();
  stale.addresses = now.addresses;
  EXPECT_THAT(join(stale, 1, 2, kRefusedMs), HasSubstr("wrong job"));
  EXPECT_EQ(join_all(now, 2), "") << "the job that listens there is undisturbed";
}

/// Shows what encryption would hide: an attacker on the path reads infos, but no secret.
TEST(OnPath, NoSecretIsOnTheWire) {
  const UniqueId id = make_id();
  Relay relay(id.addresses.front());
  UniqueId by_relay = id;
  by_relay.addresses = {relay.address()};
  EXPECT_EQ(join_all(by_relay, 2), "");
  const auto contains = [](const Bytes& all, std::span<const std::byte> part) {
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
  };
  ASSERT_EQ(relay.connections(), 2U);
  for (const std::size_t n : {0U, 1U}) {
    for (const Bytes& all : {relay.sent(n), relay.answered(n)}) {
      ASSERT_GE(all.size(), kChallenge);
      EXPECT_FALSE(contains(all, id.identity.secret));
      EXPECT_FALSE(contains(all, std::span(id.identity.secret).first(8))) << "a part of it";
    }
    EXPECT_TRUE(contains(relay.sent(n), id.identity.job)) << "the job's name is public";
  }
}

} // namespace
} // namespace whorl::test
