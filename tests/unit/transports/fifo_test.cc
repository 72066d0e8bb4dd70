#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "tests/support/failing_system.h"
#include "tests/unit/transports/fifo_pair.h"
#include "transports/fifo/layout.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"

namespace whorl {
namespace {

using test::FailingSystem;
using ::testing::HasSubstr;

TEST(SegmentLayout, PartsDoNotOverlapAndFillTheSize) {
  for (const std::uint32_t ranks : {1U, 2U, 7U}) {
    for (const std::uint32_t slots : {1U, 3U, 8U}) {
      const auto layout =
          SegmentLayout::make({.ranks = ranks, .channels = 2, .slots = slots, .slot_bytes = 320});
      ASSERT_TRUE(layout.ok());
      EXPECT_GE(layout->state_offset(0), sizeof(SegmentHeader));
      EXPECT_EQ(layout->state_offset(0) % kWriterDistance, 0U);
      EXPECT_EQ(layout->state_offset(1) - layout->state_offset(0), sizeof(RankState));
      EXPECT_LE(layout->state_offset(ranks), layout->control_bytes());
      EXPECT_GE(layout->fifo().size, sizeof(FifoHead) + slots * (sizeof(SlotHeader) + 320));
      std::set<std::size_t> offsets;
      for (std::size_t channel = 0; channel < 2; ++channel) {
        for (std::size_t from = 0; from < ranks; ++from) {
          for (std::size_t to = 0; to < ranks; ++to) {
            const std::size_t offset = layout->fifo_offset(channel, from, to);
            EXPECT_GE(offset, layout->control_bytes());
            EXPECT_EQ(offset % kPageBytes, 0U);
            EXPECT_LE(offset + layout->fifo().size, layout->size());
            EXPECT_EQ((offset - layout->control_bytes()) % layout->fifo().size, 0U);
            EXPECT_TRUE(offsets.insert(offset).second);
          }
        }
      }
    }
  }
}

TEST(FifoShape, HasARingOnlyWhereItPays) {
  const auto ring = [](std::size_t slots, std::size_t slot_bytes, bool long_laps = true) {
    const FifoShape shape(slots, slot_bytes, long_laps);
    if (shape.shortest_lap != 0) {
      EXPECT_GE(shape.first_size, shape.slots_size + (slots + 1) * slot_bytes);
      EXPECT_GE(shape.size, shape.slots_size + shape.longest_lap + slot_bytes);
    } else {
      EXPECT_EQ(shape.size, shape.slots_size);
    }
    EXPECT_LE(shape.first_size, shape.size);
    return shape.longest_lap;
  };
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_EQ(ring(16, 65536), 3 * kMiB) << "a core for each rank";
  EXPECT_EQ(ring(16, 65536, false), kMiB) << "with a budget";
  EXPECT_EQ(ring(8, 65536), 3 * kMiB);
  EXPECT_EQ(ring(4, 65536), 0U) << "shared cores";
  EXPECT_EQ(ring(4, 512 * 1024), 0U) << "with TCP";
  EXPECT_EQ(ring(64, 1024), 0U) << "little memory";
  EXPECT_EQ(ring(64, 65536), 4 * kMiB) << "a lap takes at least the bytes of the slots";
}

TEST(SegmentLayout, RefusesImpossibleShapes) {
  const SegmentShape good{.ranks = 2, .channels = 2, .slots = 4, .slot_bytes = 64};
  EXPECT_TRUE(SegmentLayout::make(good).ok());
  const auto refused = [&](auto change) {
    SegmentShape shape = good;
    change(shape);
    const auto layout = SegmentLayout::make(shape);
    return !layout.ok() && layout.status().message().find("WHORL_SLOTS") != std::string::npos;
  };
  EXPECT_TRUE(refused([](SegmentShape& s) { s.ranks = 0; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.channels = 0; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.slots = 0; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.slot_bytes = 0; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.slot_bytes = 100; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.slot_bytes = UINT64_MAX - 63; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.slots = UINT32_MAX; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.ranks = s.channels = UINT32_MAX; }));
  EXPECT_TRUE(refused([](SegmentShape& s) { s.ranks = 1U << 20; }));
}

TEST(SegmentLayout, ComparesHeaders) {
  const auto layout =
      SegmentLayout::make({.ranks = 2, .channels = 2, .slots = 4, .slot_bytes = 64});
  SegmentHeader header{};
  EXPECT_FALSE(layout->check(header).ok());
  layout->stamp(header);
  EXPECT_TRUE(layout->check(header).ok());
  header.slots = 5;
  EXPECT_THAT(layout->check(header).message(), HasSubstr("must be the same everywhere"));
}

TEST(FifoEndpoint, PreparesItsMemoryOnceAndOnlyToSend) {
  Pair pair(2);
  FifoEndpoint a = pair.endpoint(0);
  EXPECT_FALSE(a.try_peek());
  EXPECT_EQ(pair.prepared_, 0);
  pair.refuse_memory_ = true;
  EXPECT_TRUE(a.try_reserve().empty());
  pair.refuse_memory_ = false;
  EXPECT_FALSE(a.try_reserve().empty());
  EXPECT_FALSE(a.try_reserve().empty());
  EXPECT_EQ(pair.prepared_, 2);
}

TEST(FifoEndpoint, KeepsASlotUntilItIsReleased) {
  Pair pair(3); // a ring of four slots, of which three are used
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_FALSE(a.try_reserve().empty());
      a.commit(0, {});
    }
    ASSERT_TRUE(a.try_reserve().empty());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(b.try_peek());
      b.release();
    }
    ASSERT_FALSE(b.try_peek());
  }
}

TEST(FifoEndpoint, TriesStoresForSmallAndLargeMessagesApart) {
  constexpr std::size_t kSmall = 4096, kLarge = 65536;
  Pair pair(2, kLarge);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  std::vector<std::byte> copy(kLarge);
  const auto pass = [&](std::size_t bytes, int messages) {
    for (int i = 0; i < messages; ++i) {
      ASSERT_FALSE(a.try_reserve(bytes).empty());
      a.commit(bytes, {});
      const Message message = b.try_peek();
      ASSERT_TRUE(message);
      std::memcpy(copy.data(), message.data, bytes); // takes time
      b.release();
    }
  };
  EXPECT_TRUE(a.store_hint(kSmall).on_trial && a.store_hint(kLarge).on_trial);
  pass(kSmall, 50);
  EXPECT_FALSE(a.store_hint(kSmall).on_trial);
  EXPECT_TRUE(a.store_hint(kLarge).on_trial);
  EXPECT_GT(pair.head(0).pace[0], 0U);
  EXPECT_EQ(pair.head(0).pace[1], 0U);
  pass(kLarge, 50);
  EXPECT_FALSE(a.store_hint(kLarge).on_trial);
  EXPECT_GT(pair.head(0).pace[1], 0U);
}

/// Checks that a run of timed messages in exposed buffers begins with a pace of its own.

TEST(FifoEndpoint, TimesEachRunOfPutMessagesAnew) {
  Pair pair(2);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  const std::span<std::byte> memory = std::span(pair.heap_).first(kMinSharedBytes);
  ASSERT_FALSE(a.try_reserve(0).empty());
  a.commit(0, {});
  ASSERT_TRUE(b.try_peek());
  b.release();
  bool changed = false;
  for (std::uint64_t number = 2; number < 40; ++number) {
    ASSERT_TRUE(b.expose_recv_buffer(number, memory, {}));
    ASSERT_FALSE(a.try_put(memory.size(), {}).empty());
    a.commit(memory.size(), {});
    ASSERT_TRUE(b.try_peek());
    b.release();
    changed |= number > 8 && pair.head(0).pace[0] != 1;
    pair.head(0).pace[0] = 1; // less than any real one
  }
  EXPECT_TRUE(changed)
      << "the first message of the second run has not replaced the pace of the first";
}

TEST(FifoEndpoint, NeedsOnlyPublishedSources) {
  Pair pair(4);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  ASSERT_FALSE(a.try_reserve().empty());
  a.commit(200, {});
  EXPECT_EQ(a.released(), 1U) << "a copied message does not need its source";
  ASSERT_EQ(a.try_send_descriptor(std::span(pair.heap_).first(kMinSharedBytes), {}),
            DescriptorSend::kSent);
  EXPECT_EQ(a.released(), 0U);
  b.release();
  EXPECT_EQ(a.released(), 1U);
  const Message message = b.try_peek();
  EXPECT_EQ(message.data, pair.heap_.data());
  EXPECT_EQ(message.bytes, kMinSharedBytes);
  b.release();
  EXPECT_EQ(a.released(), 2U);
  EXPECT_EQ(a.try_send_descriptor(std::span(pair.heap_).first(kMinSharedBytes - 1), {}),
            DescriptorSend::kUnreachable)
      << "small messages are copied";
}

/// Checks the mark of a rank that reads or writes memory of its peer.

TEST(FifoEndpoint, SaysWhenItTouchesMemoryOfThePeer) {
  Pair pair(4);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  const std::span<std::byte> memory = std::span(pair.heap_).first(kMinSharedBytes);
  ASSERT_EQ(a.try_send_descriptor(memory, {}), DescriptorSend::kSent);
  EXPECT_EQ(pair.state(1).touching, 0U);
  ASSERT_TRUE(b.try_peek());
  ASSERT_TRUE(b.try_peek()) << "again";
  EXPECT_EQ(pair.state(1).touching, 1U) << "reads";
  b.release();
  EXPECT_EQ(pair.state(1).touching, 0U);

  ASSERT_TRUE(b.expose_recv_buffer(2, memory, {.sequence = 1}));
  ASSERT_TRUE(b.expose_recv_buffer(3, memory, {.sequence = 2}));
  EXPECT_TRUE(a.try_put(memory.size(), {.sequence = 2}).empty()) << "not the next message";
  EXPECT_EQ(pair.state(0).touching, 0U);
  ASSERT_EQ(a.try_put(memory.size(), {.sequence = 1}).data(), memory.data());
  EXPECT_EQ(pair.state(0).touching, 1U) << "writes";
  EXPECT_FALSE(b.try_peek());
  a.commit(memory.size(), {.sequence = 1});
  EXPECT_EQ(pair.state(0).touching, 0U);
  ASSERT_EQ(b.try_peek().data, memory.data());
  b.release();

  pair.state(1).revoked = 1;
  EXPECT_TRUE(a.try_put(memory.size(), {.sequence = 2}).empty());
  ASSERT_EQ(a.try_send_descriptor(memory, {}), DescriptorSend::kSent);
  pair.state(0).revoked = 1;
  EXPECT_FALSE(b.try_peek());
  EXPECT_EQ(pair.state(0).touching, 0U);
  EXPECT_EQ(pair.state(1).touching, 0U);
}

TEST(FifoEndpoint, AnUnusedBufferOfAnEarlierMessageIsNotUsed) {
  Pair pair(2);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  const std::span<std::byte> buffer = std::span(pair.heap_).first(kMinSharedBytes);
  for (std::uint64_t number = 1; number <= 3 * kRecvBuffersAhead; ++number) {
    if (number % 2 == 0) {
      ASSERT_TRUE(b.expose_recv_buffer(number, buffer, {}));
    }
    // The message differs from the expected one.
    ASSERT_TRUE(a.try_put(buffer.size(), {.sequence = 9}).empty());
    ASSERT_FALSE(a.try_reserve(0).empty());
    a.commit(0, {.sequence = 9});
    ASSERT_TRUE(b.try_peek());
    b.release();
  }
  EXPECT_EQ(pair.corrupt_, "");
}

TEST(FifoEndpoint, RefusesWhatAPeerCannotHaveMeant) {
  {
    Pair pair(4);
    FifoEndpoint b = pair.endpoint(1);
    pair.slot(0, 0).flag.store((std::uint64_t{1} << 63) | (std::uint64_t{1} << 32) | 1);
    EXPECT_FALSE(b.try_peek());
    EXPECT_THAT(pair.corrupt_, HasSubstr("never exposed"));
  }
  {
    Pair pair(4);
    FifoEndpoint a = pair.endpoint(0);
    ExposedBuffer& buffer = pair.head(0).exposed[1];
    buffer.memory = {.offset = 2 * kMinSharedBytes - 99, .bytes = kMinSharedBytes};
    buffer.number.store(1);
    EXPECT_TRUE(a.try_put(kMinSharedBytes, {}).empty());
    EXPECT_THAT(pair.corrupt_, HasSubstr("does not share"));
  }
  {
    Pair pair(4);
    FifoEndpoint b = pair.endpoint(1);
    pair.slot(0, 0).flag.store(((pair.layout_.shape().slot_bytes + 1) << 32) | 1);
    EXPECT_FALSE(b.try_peek());
    EXPECT_THAT(pair.corrupt_, HasSubstr("larger than a slot"));
    EXPECT_EQ(pair.corrupt_peer_, 0);
  }
  {
    Pair pair(4);
    FifoEndpoint b = pair.endpoint(1);
    const Descriptor outside{.offset = 2 * kMinSharedBytes - 99, .bytes = 100};
    std::memcpy(&pair.slot(0, 0).small, &outside, sizeof outside);
    pair.slot(0, 0).flag.store((std::uint64_t{1} << 63) | 1);
    EXPECT_FALSE(b.try_peek());
    EXPECT_THAT(pair.corrupt_, HasSubstr("does not share"));
  }
  { // timed after the first try_peek(): there is no buffer to read
    Pair pair(4);
    FifoEndpoint a = pair.endpoint(0);
    FifoEndpoint b = pair.endpoint(1);
    ASSERT_EQ(a.try_send_descriptor(std::span(pair.heap_).first(kMinSharedBytes), {}),
              DescriptorSend::kSent);
    ASSERT_TRUE(b.try_peek());
    pair.slot(0, 0).flag |= std::uint64_t{1} << 62;
    b.release();
    EXPECT_EQ(pair.head(0).pace[0], 0U);
    EXPECT_EQ(pair.head(0).pace[1], 0U);
  }
  {
    Pair pair(2);
    FifoEndpoint a = pair.endpoint(0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_FALSE(a.try_reserve().empty());
      a.commit(1, {});
    }
    pair.head(0).released.store(3);
    EXPECT_TRUE(a.try_reserve().empty());
    EXPECT_THAT(pair.corrupt_, HasSubstr("released messages"));
    EXPECT_LE(a.released(), a.sent());
  }
}

TEST(FifoEndpoint, DoesNotShowAMessageThatIsNotComplete) {
  Pair pair(2);
  FifoEndpoint a = pair.endpoint(0);
  FifoEndpoint b = pair.endpoint(1);
  const auto slot = a.try_reserve(); // a sender that dies here
  std::memset(slot.data(), 1, slot.size());
  EXPECT_FALSE(b.try_peek());
}

TEST(Transports, ReportWhatTheKernelRefuses) {
  FailingSystem failing;
  const ScopedSystem scope(&failing);
  failing.fail("random_bytes", EIO);
  ShmTransport shm;
  EXPECT_THAT(shm.listen({}).status().message(), HasSubstr("random"));
  failing.fail("mmap", ENOMEM);
  CommError comm_error;
  Membership membership;
  membership.nranks = 2;
  membership.peers.resize(2);
  membership.peers[1].rank = 1;
  membership.comm_error = &comm_error;
  InprocTransport inproc;
  const int peer = 1;
  EXPECT_THAT(inproc.connect(membership, std::span(&peer, 1), 0).message(),
              HasSubstr("Cannot allocate memory"));
}

} // namespace
} // namespace whorl
