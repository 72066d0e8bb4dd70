// The ring of a FIFO: where messages lie in it, and what a sender does without memory for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "tests/unit/transports/fifo_pair.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kSlots = 8;
constexpr std::size_t kSlotBytes = 64 * 1024;

/// One direction of a Pair: messages of which all bytes tell their number.
class Direction {
 public:
  Direction(FifoEndpoint& from, FifoEndpoint& to) : from_(from), to_(to) {}

  /// Sends a message of `bytes`, if a slot is free.
  bool send(std::size_t bytes, bool whole_slot) {
    const std::span<std::byte> memory = whole_slot ? from_.try_reserve() : from_.try_reserve(bytes);
    if (memory.empty()) return false;
    EXPECT_GE(memory.size(), bytes);
    std::fill(memory.begin(), memory.end(), std::byte{0xff}); // all that was given is free
    std::fill_n(memory.begin(), bytes, tag(from_.sent()));
    from_.commit(bytes, {});
    under_way_.push_back(bytes);
    return true;
  }
  /// Receives the oldest message, if there is one, and checks it.
  bool receive() {
    const Message message = to_.try_peek();
    if (!message) return false;
    EXPECT_EQ(message.bytes, under_way_.front());
    const std::byte expected = tag(to_.received());
    EXPECT_TRUE(std::all_of(message.data, message.data + message.bytes,
                            [&](std::byte b) { return b == expected; }))
        << "message " << to_.received() << " of " << message.bytes << " bytes";
    data_ = message.data;
    under_way_.pop_front();
    to_.release();
    return true;
  }
  /// Sends and receives `count` messages, one at a time.
  void pass(int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(send(bytes, false));
      ASSERT_TRUE(receive());
    }
  }
  bool empty() const { return under_way_.empty(); }
  const std::byte* data() const { return data_; } ///< payload of the last message received

 private:
  static std::byte tag(std::uint64_t number) { return static_cast<std::byte>(number * 37 % 251); }
  FifoEndpoint& from_;
  FifoEndpoint& to_;
  std::deque<std::size_t> under_way_;
  const std::byte* data_ = nullptr;
};

TEST(FifoRing, MessagesOfAnySizesNeverOverlap) {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    Pair pair(kSlots, kSlotBytes);
    FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
    Direction there(a, b), back(b, a);
    std::mt19937 random(seed);
    const std::array<std::size_t, 7> sizes{1, 41, 2048, 2049, 8191, kSlotBytes - 1, kSlotBytes};
    // The phases differ in what comes back, which the length of laps depends on.
    for (int phase = 0; phase < 4; ++phase) {
      const std::size_t largest = sizes[sizes.size() - 1 - random() % 3];
      std::size_t sent = 0;
      while (sent < 6 * pair.layout_.fifo().size) {
        const std::size_t bytes = random() % 2 ? largest : std::min(largest, sizes[random() % 7]);
        if (random() % 2 && there.send(bytes, random() % 4 == 0)) sent += bytes;
        if (random() % 4 < static_cast<unsigned>(phase)) back.send(bytes, false);
        if (random() % 2) there.receive();
        if (random() % 2) back.receive();
        ASSERT_FALSE(HasFailure()) << "seed " << seed << ", phase " << phase;
      }
    }
    while (there.receive() || back.receive()) {
    }
    EXPECT_TRUE(there.empty() && back.empty());
    EXPECT_EQ(pair.corrupt_, "");
    EXPECT_GT(pair.ring_parts_, 2) << "laps have become longer";
  }
}

/// Counts how many different places messages of `bytes` have had.
std::size_t places(Direction& direction, int messages, std::size_t bytes) {
  std::vector<const std::byte*> places;
  for (int i = 0; i < messages; ++i) {
    direction.pass(1, bytes);
    places.push_back(direction.data());
  }
  std::sort(places.begin(), places.end());
  return static_cast<std::size_t>(std::unique(places.begin(), places.end()) - places.begin());
}

TEST(FifoRing, LeavesALineAloneForLong) {
  Pair pair(kSlots, kSlotBytes);
  FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
  Direction there(a, b);
  const FifoShape& shape = pair.layout_.fifo();
  EXPECT_EQ(places(there, 500, 8192), shape.shortest_lap / 8192 + 1) << "at first";
  EXPECT_EQ(pair.backed_, shape.first_size);
  there.pass(2000, 8192);
  EXPECT_EQ(places(there, 1000, 8192), shape.longest_lap / 8192);
  EXPECT_EQ(places(there, 1000, 1024), kSlots) << "short messages";
  EXPECT_LE(pair.backed_, shape.size);
  // Bytes of the other direction count, too: a lap ends when both have moved enough.
  Direction back(b, a);
  for (int i = 0; i < 3000; ++i) back.pass(1, 8192), there.pass(1, 8192);
  std::size_t longest = 0, lap = 0;
  const std::byte* before = nullptr;
  for (int i = 0; i < 1000; ++i) {
    there.pass(1, 8192), back.pass(1, 8192);
    lap = there.data() < before ? 1 : lap + 1;
    before = there.data();
    longest = std::max(longest, lap);
  }
  EXPECT_EQ(longest, shape.longest_lap / 2 / 8192);
}

TEST(FifoRing, IsThereAtOnceForAnOnlyPeer) {
  for (const bool memory : {true, false}) {
    Pair pair(kSlots, kSlotBytes);
    pair.only_peer_ = true;
    FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
    Direction there(a, b);
    there.pass(1, 2048);
    const FifoShape& shape = pair.layout_.fifo();
    EXPECT_EQ(pair.backed_, shape.slots_size) << "short messages need no ring";
    pair.most_ = memory ? shape.size : shape.first_size;
    there.pass(1, 8192);
    EXPECT_EQ(pair.backed_, pair.most_);
    EXPECT_EQ(places(there, 1000, 8192),
              (memory ? shape.longest_lap : shape.shortest_lap + 8192) / 8192);
  }
}

TEST(FifoRing, KeepsToShortLapsWithoutMemory) {
  const FifoShape shape(kSlots, kSlotBytes, true);
  for (const std::size_t parts : {0U, 1U, 3U}) {
    Pair pair(kSlots, kSlotBytes);
    FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
    Direction there(a, b);
    for (int i = 0; i < 1000; ++i) {
      pair.refuse_memory_ = i > 0 && pair.backed_ >= shape.first_size + parts * 256 * 1024;
      there.pass(1, kSlotBytes);
    }
    EXPECT_EQ(places(there, 100, kSlotBytes), kSlots + 1 + 4 * parts);
    EXPECT_EQ(pair.ring_parts_, static_cast<int>(parts) + 1) << "asked until refused";
  }
}

TEST(FifoRing, SaysWhichPayloadsAreInTheSendersCache) {
  Pair pair(kSlots, kSlotBytes);
  FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
  bool cached = false, bypassed = false;
  for (int i = 0; i < 1000; ++i) { // trials of both kinds of stores are among them
    for (const std::size_t bytes : {std::size_t{512}, kSlotBytes}) {
      ASSERT_FALSE(a.try_reserve(bytes).empty());
      const bool nontemporal = a.store_hint(bytes).nontemporal;
      a.commit(bytes, {});
      const bool expected = bytes >= kMinNontemporalBytes && !nontemporal;
      EXPECT_EQ(b.try_peek().in_another_cache, expected) << "message " << i;
      if (bytes == kSlotBytes) (expected ? cached : bypassed) = true;
      b.release();
    }
  }
  EXPECT_TRUE(cached && bypassed);
}

TEST(FifoRing, RefusesAPayloadOutsideOfTheFifo) {
  const std::uint64_t last = FifoShape(kSlots, kSlotBytes, true).size - kSlotBytes;
  for (const std::uint64_t offset : {last - 1, last + 64, UINT64_MAX - 63}) {
    Pair pair(kSlots, kSlotBytes);
    FifoEndpoint a = pair.endpoint(0), b = pair.endpoint(1);
    ASSERT_FALSE(a.try_reserve(kSlotBytes).empty());
    a.commit(kSlotBytes, {});
    std::memcpy(&pair.slot(0, 0).small, &offset, sizeof offset);
    EXPECT_FALSE(b.try_peek());
    EXPECT_THAT(pair.corrupt_, HasSubstr("outside of its FIFO"));
  }
}

} // namespace
} // namespace whorl
