// Tests of every transport: messages arrive once, in order, with their bytes, whatever their size.

#include <gtest/gtest.h>

#include <random>

#include "memory/heap.h"
#include "tests/conformance/rig.h"

namespace whorl::test {
namespace {

class Messages : public TransportTest {
 protected:
  /// Connects n ranks and runs `body` on each; expects no failure.
  void on_ranks(int nranks, const RigOptions& options,
                const std::function<void(Rig&, RankContext&)>& body) {
    const std::uint64_t job = fresh_job();
    const auto outcomes = run_ranks(nranks, GetParam().mode, [&](RankContext& context) {
      Rig rig(context, GetParam(), job, options);
      const Status status = rig.connect();
      ASSERT_TRUE(status.ok()) << status.message();
      body(rig, context);
      EXPECT_TRUE(rig.flush());
      EXPECT_EQ(rig.comm_error().status().message(), "");
      context.barrier();
    });
    EXPECT_EQ(failures_of(outcomes), "");
  }
};

Fingerprint numbered(std::uint32_t number) { return {.sequence = number, .count_plan = number}; }

TEST_P(Messages, ArriveInOrderAndSlotsWrapAround) {
  for (const int slots : {2, 3, 8}) {
    on_ranks(2, {.slots = slots}, [](Rig& rig, RankContext& context) {
      const int peer = 1 - context.rank;
      for (std::uint32_t i = 0; i < 200; ++i) {
        const std::size_t bytes = i * 37 % 4097;
        ASSERT_TRUE(rig.send(peer, pattern(bytes, i), numbered(i)));
        const Message message = rig.receive(peer);
        ASSERT_TRUE(matches(message, bytes, i)) << "message " << i;
        EXPECT_EQ(message.fingerprint, numbered(i));
        rig.to(peer).release();
      }
      EXPECT_EQ(rig.to(peer).sent(), 200U);
    });
  }
}

TEST_P(Messages, HaveEverySizeFromNothingToTheWholeSlot) {
  on_ranks(2, {.slot_bytes = 256}, [](Rig& rig, RankContext& context) {
    for (std::size_t bytes = 0; bytes <= 256; ++bytes) {
      if (context.rank == 0) {
        ASSERT_TRUE(
            rig.send(1, pattern(bytes, bytes), numbered(static_cast<std::uint32_t>(bytes))));
      } else {
        ASSERT_TRUE(matches(rig.receive(0), bytes, bytes)) << bytes << " bytes";
        rig.to(0).release();
      }
    }
  });
}

TEST_P(Messages, FillTheSlotsAndNoMore) {
  for (const int slots : {2, 3, 4}) {
    on_ranks(2, {.slots = slots}, [slots](Rig& rig, RankContext& context) {
      if (context.rank == 0) {
        for (int i = 0; i < slots; ++i) {
          ASSERT_TRUE(rig.send(1, pattern(100, static_cast<std::uint64_t>(i)), {}));
        }
        EXPECT_TRUE(rig.flush());
        EXPECT_EQ(rig.to(1).try_reserve().empty(), !GetParam().buffers);
        context.barrier();
        std::span<std::byte> slot;
        EXPECT_EQ(rig.wait([&] { return !(slot = rig.to(1).try_reserve()).empty(); }),
                  WaitResult::kReady);
        EXPECT_EQ(slot.size(), rig.membership().slot_bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slot.data()) % 64, 0U);
        EXPECT_EQ(rig.to(1).try_reserve().data(), slot.data()) << "repeated calls differ";
        EXPECT_GE(rig.to(1).released(), 1U);
        EXPECT_LE(rig.to(1).released(), rig.to(1).sent());
      } else {
        context.barrier();
        for (int i = 0; i < slots; ++i) {
          ASSERT_TRUE(matches(rig.receive(0), 100, static_cast<std::uint64_t>(i)));
          EXPECT_EQ(rig.to(0).try_peek().data, rig.to(0).try_peek().data);
          rig.to(0).release();
        }
        EXPECT_FALSE(rig.to(0).try_peek());
      }
    });
  }
}

TEST_P(Messages, AreAbsentBeforeTheyAreSent) {
  on_ranks(2, {}, [](Rig& rig, RankContext& context) {
    const int peer = 1 - context.rank;
    EXPECT_FALSE(rig.to(peer).try_peek());
    EXPECT_EQ(rig.to(peer).sent(), 0U);
    EXPECT_EQ(rig.to(peer).released(), 0U);
    context.barrier();
    EXPECT_EQ(rig.wait([&] { return static_cast<bool>(rig.to(peer).try_peek()); }, 20'000'000),
              WaitResult::kTimedOut);
  });
}

TEST_P(Messages, OfOneChannelDoNotHoldUpAnother) {
  on_ranks(2, {.channels = 3, .slots = 2}, [](Rig& rig, RankContext& context) {
    if (context.rank == 0) {
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(rig.send(1, pattern(4096, 1), {}, 0));
      for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(rig.send(1, pattern(4096, i), {}, 2));
    } else {
      for (std::uint64_t i = 0; i < 20; ++i) {
        ASSERT_TRUE(matches(rig.receive(0, 2), 4096, i));
        rig.to(0, 2).release();
      }
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(matches(rig.receive(0, 0), 4096, 1));
        rig.to(0, 0).release();
      }
      EXPECT_FALSE(rig.to(0, 1).try_peek());
    }
  });
}

TEST_P(Messages, MayBePublishedOrCopied) {
  const TransportKind kind = GetParam();
  on_ranks(2, {.slot_bytes = 65536}, [&kind](Rig& rig, RankContext& context) {
    constexpr std::size_t kBytes = 50'000;
    const auto deliver = [&](std::span<std::byte> source, bool publishes) {
      for (std::uint64_t round = 0; round < 10; ++round) {
        const auto bytes = pattern(kBytes, round);
        std::copy(bytes.begin(), bytes.end(), source.begin());
        EXPECT_EQ(rig.to(1).can_send_descriptor(source), publishes);
        DescriptorSend outcome = DescriptorSend::kBusy;
        ASSERT_EQ(rig.wait([&] {
          return (outcome = rig.to(1).try_send_descriptor(source, numbered(7))) !=
                 DescriptorSend::kBusy;
        }),
                  WaitResult::kReady);
        EXPECT_EQ(outcome == DescriptorSend::kSent, publishes);
        if (outcome == DescriptorSend::kUnreachable) {
          ASSERT_TRUE(rig.send(1, source, numbered(7)));
        }
        ASSERT_EQ(rig.wait([&] { return rig.to(1).released() == rig.to(1).sent(); }),
                  WaitResult::kReady);
      }
    };
    if (context.rank == 0) {
      auto heap = heap_alloc(kBytes);
      ASSERT_TRUE(heap.ok()) << heap.status().message();
      deliver({static_cast<std::byte*>(*heap), kBytes}, kind.heap_publish);
      std::vector<std::byte> plain(kBytes);
      deliver(plain, kind.plain_publish);
      EXPECT_TRUE(heap_free(*heap).ok());
    } else {
      for (std::uint64_t i = 0; i < 20; ++i) {
        const Message message = rig.receive(0);
        ASSERT_TRUE(matches(message, kBytes, i % 10)) << i;
        EXPECT_EQ(message.fingerprint, numbered(7));
        rig.to(0).release();
      }
    }
  });
}

TEST_P(Messages, PublishedTakeSlotsAndKeepTheirSource) {
  if (!GetParam().heap_publish) GTEST_SKIP() << GetParam().name << " always copies";
  if (GetParam().buffers) GTEST_SKIP() << GetParam().name << " has buffers beyond the slots";
  on_ranks(2, {.slots = 2}, [](Rig& rig, RankContext& context) {
    if (context.rank == 0) {
      auto heap = heap_alloc(8192);
      ASSERT_TRUE(heap.ok());
      const std::span<const std::byte> source(static_cast<std::byte*>(*heap), 8192);
      ASSERT_EQ(rig.to(1).try_send_descriptor(source.first(4096), {}), DescriptorSend::kSent);
      ASSERT_EQ(rig.to(1).try_send_descriptor(source.last(4096), {}), DescriptorSend::kSent);
      EXPECT_EQ(rig.to(1).try_send_descriptor(source.first(4096), {}), DescriptorSend::kBusy);
      EXPECT_EQ(rig.to(1).sent(), 2U);
      if (!GetParam().frees_early) {
        EXPECT_EQ(rig.to(1).released(), 0U);
      }
      context.barrier();
      EXPECT_EQ(rig.wait([&] { return rig.to(1).released() >= 1; }), WaitResult::kReady);
      EXPECT_EQ(rig.wait([&] { return rig.to(1).released() >= 2; }), WaitResult::kReady);
      EXPECT_TRUE(heap_free(*heap).ok());
    } else {
      context.barrier();
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(rig.receive(0).bytes, 4096U);
        rig.to(0).release();
      }
    }
  });
}

TEST_P(Messages, MayBeReceivedInAPostedBuffer) {
  on_ranks(2, {.slot_bytes = 65536}, [](Rig& rig, RankContext& context) {
    for (std::uint32_t i = 0; i < 50; ++i) {
      const std::size_t bytes = 1 + i * 1301;
      if (context.rank == 0) {
        ASSERT_TRUE(rig.send(1, pattern(bytes, i), numbered(i)));
        continue;
      }
      // Two of three buffers do not match: by another fingerprint, or by another size.
      std::vector<std::byte> destination(i % 3 == 1 ? bytes + 1 : bytes, std::byte{0xee});
      const std::vector<std::byte> before = destination;
      Message message;
      EXPECT_EQ(rig.wait([&] {
        rig.to(0).post_recv(destination, numbered(i % 3 == 2 ? i + 1 : i));
        return static_cast<bool>(message = rig.to(0).try_peek());
      }),
                WaitResult::kReady);
      ASSERT_TRUE(matches(message, bytes, i));
      if (i % 3 != 0) {
        EXPECT_NE(message.data, destination.data());
        EXPECT_EQ(destination, before) << "wrote before it compared";
      }
      rig.to(0).release();
    }
  });
}

TEST_P(Messages, GoStraightToExposedBuffers) {
  if (!GetParam().puts) GTEST_SKIP() << GetParam().name << " does not write into peers' memory";
  static constexpr std::uint32_t kMessages = 7;
  static constexpr std::size_t kRoom = 16384;
  on_ranks(2, {.slots = 8, .slot_bytes = kRoom}, [](Rig& rig, RankContext& context) {
    const auto size_of_message = [](std::uint32_t i) { return kMinSharedBytes + i * 1001; };
    // Two of three buffers do not match: by another fingerprint, or by another size.
    const auto fits = [](std::uint32_t i) { return i % 3 == 1; };
    if (context.rank == 0) {
      ASSERT_TRUE(rig.send(1, pattern(1, 0), numbered(0)));
      ASSERT_TRUE(rig.receive(1)) << "no sign that the buffers were exposed";
      rig.to(1).release();
      for (std::uint32_t i = 1; i <= kMessages; ++i) {
        const auto bytes = pattern(size_of_message(i), i);
        const auto buffer = rig.to(1).try_put(bytes.size(), numbered(i));
        ASSERT_EQ(buffer.empty(), !fits(i)) << "message " << i;
        if (buffer.empty()) {
          ASSERT_TRUE(rig.send(1, bytes, numbered(i)));
          continue;
        }
        ASSERT_EQ(buffer.size(), bytes.size());
        std::copy(bytes.begin(), bytes.end(), buffer.begin());
        rig.to(1).commit(bytes.size(), numbered(i));
      }
      ASSERT_TRUE(rig.receive(1)) << "no sign that access was revoked";
      rig.to(1).release();
      EXPECT_TRUE(rig.to(1).try_put(size_of_message(0), numbered(0)).empty()) << "taken back";
      return;
    }
    const auto memory = heap_alloc((kMessages + 1) * kRoom);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    const auto buffer = [&](std::uint32_t i) {
      return std::span(static_cast<std::byte*>(*memory) + i * kRoom, size_of_message(i));
    };
    EXPECT_FALSE(rig.to(0).expose_recv_buffer(2, buffer(1), numbered(1)))
        << "before the first message";
    ASSERT_TRUE(rig.receive(0));
    rig.to(0).release();
    ASSERT_EQ(rig.to(0).received(), 1U);
    ASSERT_GE(rig.to(0).traits().recv_buffers_ahead, kMessages);
    for (std::uint32_t i = 1; i <= kMessages; ++i) {
      const auto exposed = i % 3 == 2 ? buffer(i).first(buffer(i).size() - 1) : buffer(i);
      EXPECT_TRUE(rig.to(0).expose_recv_buffer(1 + i, exposed, numbered(i % 3 == 0 ? i + 1 : i)));
    }
    EXPECT_FALSE(rig.to(0).expose_recv_buffer(1 + rig.to(0).traits().recv_buffers_ahead + 1,
                                              buffer(0), numbered(0)))
        << "too far ahead";
    ASSERT_TRUE(rig.send(0, pattern(1, 0), numbered(0)));
    for (std::uint32_t i = 1; i <= kMessages; ++i) {
      const Message message = rig.receive(0);
      ASSERT_TRUE(matches(message, size_of_message(i), i));
      EXPECT_TRUE(message.fingerprint == numbered(i));
      EXPECT_EQ(message.data == buffer(i).data(), fits(i)) << "message " << i;
      rig.to(0).release();
    }
    ASSERT_TRUE(rig.to(0).expose_recv_buffer(kMessages + 2, buffer(0), numbered(0)));
    EXPECT_TRUE(rig.transport().revoke_access());
    ASSERT_TRUE(rig.send(0, pattern(1, 0), numbered(0)));
    EXPECT_TRUE(heap_free(*memory).ok());
  });
}

/// Sends and receives on every endpoint at once, in a pseudorandom order.
void exchange_all(Rig& rig, RankContext& context, int messages, std::uint64_t seed) {
  struct Lane {
    int peer, channel, sent = 0, received = 0;
    std::mt19937_64 send_sizes, receive_sizes;
  };
  std::vector<Lane> lanes;
  for (int peer = 0; peer < context.nranks; ++peer) {
    if (peer == context.rank) continue;
    for (int channel = 0; channel < rig.membership().channels; ++channel) {
      const auto name = [&](int from, int to) {
        return seed + static_cast<std::uint64_t>((from * 64 + to) * 64 + channel);
      };
      lanes.push_back({.peer = peer,
                       .channel = channel,
                       .send_sizes = std::mt19937_64(name(context.rank, peer)),
                       .receive_sizes = std::mt19937_64(name(peer, context.rank))});
    }
  }
  std::mt19937_64 order(seed + static_cast<std::uint64_t>(context.rank));
  std::size_t open = lanes.size() * 2;
  bool wrong = false;
  const auto advance = [&] {
    for (std::size_t n = 0; n < lanes.size(); ++n) {
      Lane& lane = lanes[order() % lanes.size()];
      Endpoint& endpoint = rig.to(lane.peer, lane.channel);
      if (lane.sent < messages) {
        if (const auto slot = endpoint.try_reserve(); !slot.empty()) {
          const std::uint64_t draw = lane.send_sizes();
          const auto bytes = pattern(draw % (slot.size() + 1), draw);
          std::copy(bytes.begin(), bytes.end(), slot.begin());
          endpoint.commit(bytes.size(), numbered(static_cast<std::uint32_t>(draw)));
          if (++lane.sent == messages) --open;
        }
      }
      if (lane.received < messages) {
        if (const Message message = endpoint.try_peek()) {
          const std::uint64_t draw = lane.receive_sizes();
          wrong |= !matches(message, draw % (rig.membership().slot_bytes + 1), draw) ||
                   !(message.fingerprint == numbered(static_cast<std::uint32_t>(draw)));
          endpoint.release();
          if (++lane.received == messages) --open;
        }
      }
    }
    return open == 0 || wrong;
  };
  EXPECT_EQ(rig.wait(advance), WaitResult::kReady);
  EXPECT_FALSE(wrong);
}

TEST_P(Messages, OfRandomSizesCrossOnAllChannels) {
  constexpr std::uint64_t kSeed = 20240501;
  on_ranks(4, {.channels = 3, .slots = 3, .slot_bytes = 2048},
           [](Rig& rig, RankContext& context) { exchange_all(rig, context, 100, kSeed); });
}

/// Sends enough for several laps of the ring that FIFOs of this size have.
TEST_P(Messages, OfRandomSizesCrossThroughManySlots) {
  constexpr std::uint64_t kSeed = 20261125;
  on_ranks(2, {.slots = 8, .slot_bytes = 65536},
           [](Rig& rig, RankContext& context) { exchange_all(rig, context, 600, kSeed); });
}

TEST_P(Messages, WakeARankThatSleeps) {
  on_ranks(2, {.spins = 0, .yield_ns = 0}, [](Rig& rig, RankContext& context) {
    for (std::uint32_t i = 0; i < 100; ++i) {
      if (context.rank == 0) {
        ASSERT_TRUE(rig.send(1, pattern(8, i), numbered(i)));
      }
      ASSERT_TRUE(matches(rig.receive(1 - context.rank), 8, i));
      rig.to(1 - context.rank).release();
      if (context.rank == 1) {
        ASSERT_TRUE(rig.send(0, pattern(8, i), numbered(i)));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Messages, ::testing::ValuesIn(transport_kinds()),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(TransportsFull, Messages, ::testing::ValuesIn(more_transport_kinds()),
                         name_of_kind);

} // namespace
} // namespace whorl::test
