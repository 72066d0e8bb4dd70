#include "net/key_exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace whorl {
namespace {

using Bytes = std::vector<std::byte>;

const Bytes kSecret(32, std::byte{7});
const Bytes kTranscript(100, std::byte{9});

/// The two sides of an exchange, and the keys that each derives.
struct BothSides {
  KeyExchange connecting, accepting;
  KeyExchange::Share offered{}, answered{};
  StreamKeys of_connecting, of_accepting;

  BothSides() {
    EXPECT_TRUE(connecting.make_share(&offered));
    EXPECT_TRUE(accepting.make_share(&answered));
  }
  void derive(const Bytes& secret = kSecret, const Bytes& transcript = kTranscript) {
    EXPECT_TRUE(connecting.derive(answered, kSecret, {kTranscript}, true, &of_connecting));
    EXPECT_TRUE(accepting.derive(offered, secret, {transcript}, false, &of_accepting));
  }
};

TEST(KeyExchange, GivesOneKeyForEachDirection) {
  BothSides sides;
  sides.derive();
  EXPECT_EQ(sides.of_connecting.send, sides.of_accepting.receive);
  EXPECT_EQ(sides.of_connecting.receive, sides.of_accepting.send);
  EXPECT_NE(sides.of_connecting.send, sides.of_connecting.receive);
}

TEST(KeyExchange, EveryConnectionHasKeysOfItsOwn) {
  BothSides one, other;
  one.derive();
  other.derive();
  EXPECT_NE(one.of_connecting.send, other.of_connecting.send);
}

TEST(KeyExchange, KeysDependOnTheSecretAndOnAllThatWasSaid) {
  BothSides sides;
  Bytes changed = kSecret;
  changed.back() ^= std::byte{1};
  sides.derive(changed);
  EXPECT_NE(sides.of_connecting.send, sides.of_accepting.receive);
  changed = kTranscript;
  changed.back() ^= std::byte{1};
  sides.derive(kSecret, changed);
  EXPECT_NE(sides.of_connecting.send, sides.of_accepting.receive);
  EXPECT_NE(sides.of_connecting.receive, sides.of_accepting.send);
}

TEST(KeyExchange, AShareThatMakesTheResultKnownIsRefused) {
  BothSides sides;
  StreamKeys keys;
  EXPECT_FALSE(sides.connecting.derive({}, kSecret, {kTranscript}, true, &keys));
  EXPECT_EQ(keys.send, StreamKey()) << "no key of a failed exchange";
}

} // namespace
} // namespace whorl
