// Tests of transports with two rails over RDMA devices in memory, one of which is lost.
#include <gmock/gmock.h>

#include <atomic>

#include "base/system.h"
#include "tests/unit/transports/verbs_transports.h"

namespace whorl::test {
namespace {

constexpr FakeFabric::Failure kLost{IBV_WC_RETRY_EXC_ERR, 0x81};

class VerbsTwoPorts : public VerbsTransportTest {
 protected:
  VerbsTwoPorts()
      : VerbsTransportTest(
            {{.name = "fake0", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1")}},
             {.name = "fake1", .gids = {make_gid(0, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.2")}}}) {}
};

/// Two ports, one of which is lost while messages travel.
class VerbsLostPort : public VerbsTwoPorts, public ::testing::WithParamInterface<bool> {};

TEST_P(VerbsLostPort, CostsNoMessage) {
  constexpr std::uint64_t kMessages = 2000;
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    EXPECT_EQ(dynamic_cast<VerbsTransport&>(rig.transport()).own_ports().size(), 2U);
    Endpoint& peer = rig.to(1 - context.rank);
    const auto size = [](std::uint64_t number) { return number * 37 % 4096; };
    std::uint64_t sent = 0, received = 0;
    const auto exchange = [&] {
      if (sent < kMessages && sent < received + 20) {
        const auto slot = peer.try_reserve(size(sent));
        if (!slot.empty()) {
          const auto bytes = pattern(size(sent), sent);
          std::copy(bytes.begin(), bytes.end(), slot.begin());
          peer.commit(bytes.size(), {.sequence = static_cast<std::uint32_t>(sent++)});
        }
      }
      if (const Message message = peer.try_peek()) {
        EXPECT_EQ(message.fingerprint.sequence, received);
        EXPECT_TRUE(matches(message, size(received), received));
        peer.release();
        if (++received == kMessages / 2 && context.rank == 0) {
          if (GetParam()) {
            fabric.fail_device(1, kLost);
          } else {
            fabric.fail_write(1, kLost); // the queue of one rank, which the other one finds sound
          }
        }
      }
      return sent == kMessages && received == kMessages;
    };
    EXPECT_EQ(rig.wait(exchange), WaitResult::kReady)
        << sent << " sent, " << received << " received";
    EXPECT_TRUE(rig.flush());
    EXPECT_FALSE(rig.comm_error().is_set()) << rig.comm_error().status().message();
  });
}

INSTANTIATE_TEST_SUITE_P(AtBothEndsOrOne, VerbsLostPort, ::testing::Bool());

/// Exchanges messages and expects that none needs the second port.
void expect_one_port(Rig& rig, const Status& connected, RankContext& context, FakeFabric& fabric) {
  ASSERT_TRUE(connected.ok()) << connected.message();
  const int peer = 1 - context.rank;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(rig.send(peer, pattern(1000, i), {}));
    EXPECT_TRUE(matches(rig.receive(peer), 1000, i));
    rig.to(peer).release();
  }
  EXPECT_TRUE(rig.flush());
  EXPECT_FALSE(rig.to(peer).traits().queues_sends) << "nothing could be sent again";
  EXPECT_EQ(fabric.writes_of(1), 0);
}

TEST_P(VerbsLostPort, IsLeftOutIfItCannotBeConnected) {
  fabric.device(1).connect_error = EHOSTUNREACH;
  if (!GetParam()) fabric.device(1).failing_connects = 1; // of one rank
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    expect_one_port(rig, connected, context, fabric);
  });
}

TEST_F(VerbsTwoPorts, APortThatCannotBeSetUpIsLeftOut) {
  fabric.device(1).memory_bytes = 0;
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    expect_one_port(rig, connected, context, fabric);
  });
}

TEST_F(VerbsTwoPorts, APortWithoutRoomForCompletionsIsLeftOutOfSleeps) {
  fabric.device(1).max_completions = 1;
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    expect_one_port(rig, connected, context, fabric);
    rig.transport().block(1'000'000);
  });
}

TEST_F(VerbsTwoPorts, APortWithoutQueuesOnOneSideIsLeftOut) {
  fabric.device(1).queues = 1; // of the four that both ranks need
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    expect_one_port(rig, connected, context, fabric);
  });
}

TEST_F(VerbsTwoPorts, AnOperationIsCompleteWhenAllHasArrived) {
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    if (context.rank == 0) {
      EXPECT_TRUE(rig.to(1).traits().queues_sends);
      fabric.hold_device(1, true);
      for (std::uint64_t i = 0; i < 2; ++i) EXPECT_TRUE(rig.send(1, pattern(1000, i), {}));
      EXPECT_FALSE(rig.to(1).flushed()) << "what a lost port had is sent again by this side";
      fabric.hold_device(1, false);
      EXPECT_TRUE(rig.to(1).flushed());
    }
    context.barrier();
  });
}

/// Two ranks, one of which has left the operation in which a port was lost.
class VerbsIdleChannel : public VerbsTwoPorts {
 protected:
  /// Lets rank 0 send messages by channel 1 and lose some with a port, while rank 1 does nothing
  /// but `turn`, again and again.
  void expect_answer(const std::function<void(Rig&)>& turn) {
    std::atomic<bool> complete = false;
    on_ranks([&](Rig& rig, const Status& connected, RankContext& context) {
      ASSERT_TRUE(connected.ok()) << connected.message();
      Endpoint& idle = rig.to(1 - context.rank, 1);
      if (context.rank == 0) {
        fabric.fail_write(2, kLost); // of which rank 1 learns by the report only
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(rig.send(1, pattern(1000, i), {}, 1));
        EXPECT_EQ(rig.wait([&] { return idle.flushed(); }), WaitResult::kReady)
            << "the peer has not told what it lacks";
        complete = true;
      } else {
        const std::uint64_t begin = sys().now_ns();
        while (!complete && sys().now_ns() - begin < 20'000'000'000) turn(rig);
        for (std::uint64_t i = 0; i < 4; ++i) {
          EXPECT_TRUE(matches(idle.try_peek(), 1000, i));
          idle.release();
        }
      }
      context.barrier();
    });
  }
};

TEST_F(VerbsIdleChannel, AnswersWhileAnotherWaits) {
  expect_answer([](Rig& rig) {
    const auto attempt = [&] { return rig.to(0, 0).progress(); };
    wait_until(attempt, {.timeout_ns = 3'000'000}, rig.comm_error(), rig.transport());
  });
}

TEST_F(VerbsIdleChannel, AnswersWhileAnotherIsUsedWithoutLongWaits) {
  expect_answer([](Rig& rig) { rig.to(0, 0).progress(); });
}

TEST_F(VerbsIdleChannel, AnswersWhileTheRankWaitsForOtherTransports) {
  expect_answer([](Rig& rig) {
    rig.transport().poll_failures(0);
    rig.transport().serve_idle_endpoints();
  });
}

TEST_F(VerbsTwoPorts, AnIdleChannelTellsAgainWhatWasReleased) {
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    const int peer = 1 - context.rank;
    Endpoint &used = rig.to(peer, 0), &idle = rig.to(peer, 1);
    const auto wait = [&](Endpoint& endpoint, const std::function<bool()>& done) {
      const auto attempt = [&] { return done() ? Progress::kDone : endpoint.progress(); };
      return wait_until(attempt, {.timeout_ns = 20'000'000'000}, rig.comm_error(), rig.transport());
    };
    const auto fill = [&] {
      std::uint64_t sent = 0;
      while (!idle.try_reserve(8).empty()) idle.commit(8, {}), ++sent;
      return sent;
    };
    if (context.rank == 0) {
      EXPECT_GT(fill(), 0U);
    }
    context.barrier();
    if (context.rank == 1) {
      fabric.fail_write(1, kLost); // a count; only the completions of this channel tell
      EXPECT_TRUE(bool(idle.try_peek()));
      idle.release();
    }
    context.barrier();
    if (context.rank == 0) {
      EXPECT_EQ(wait(idle, [&] { return !idle.try_reserve(8).empty(); }), WaitResult::kReady);
      EXPECT_EQ(fill(), 1U);
      EXPECT_EQ(wait(idle, [&] { return idle.flushed(); }), WaitResult::kReady);
      EXPECT_FALSE(used.try_reserve(0).empty());
      used.commit(0, {});
    } else {
      EXPECT_EQ(wait(used, [&] { return bool(used.try_peek()); }), WaitResult::kReady);
    }
    context.barrier();
  });
}

TEST_F(VerbsTwoPorts, ARankMayLeaveWhileAPortIsLost) {
  std::atomic<bool> left = false;
  on_ranks([&](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    if (context.rank == 0) {
      fabric.hold_device(1, true);
      for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(rig.send(1, pattern(1000, i), {}));
      fabric.fail_device(1, kLost);
      EXPECT_TRUE(rig.flush());
      rig.destroy();
      left = true;
    } else {
      EXPECT_EQ(rig.wait([&] { return left.load(); }), WaitResult::kReady);
      for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(matches(rig.receive(0), 1000, i));
        rig.to(0).release();
      }
      EXPECT_FALSE(rig.comm_error().is_set()) << rig.comm_error().status().message();
    }
    context.barrier();
  });
}

TEST_F(VerbsTwoPorts, ThePeerThatHasLeftNeedsNoMore) {
  on_ranks([this](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    if (context.rank == 0) {
      fabric.hold_successes(true); // so that this rank does not know what has arrived
      for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(rig.send(1, pattern(1000, i), {}));
      context.barrier();
      EXPECT_FALSE(rig.to(1).flushed());
      context.barrier();
      fabric.fail_device(1, kLost);
      EXPECT_TRUE(rig.flush());
      EXPECT_EQ(rig.wait([] { return false; }, 50'000'000), WaitResult::kTimedOut);
      EXPECT_FALSE(rig.comm_error().is_set()) << rig.comm_error().status().message();
    } else {
      context.barrier();
      for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(matches(rig.receive(0), 1000, i));
        rig.to(0).release();
      }
      rig.destroy();
      context.barrier();
    }
    context.barrier();
  });
}

TEST_F(VerbsTransportTest, BlockEndsWhenAMessageComes) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  on_ranks([](Rig& rig, const Status& connected, RankContext& context) {
    ASSERT_TRUE(connected.ok()) << connected.message();
    Endpoint& peer = rig.to(1 - context.rank);
    for (std::uint64_t i = 0; i < 20; ++i) { // in turn
      if (i % 2 == static_cast<std::uint64_t>(context.rank)) {
        System().sleep_ns(2'000'000); // so that the peer sleeps
        EXPECT_TRUE(rig.send(1 - context.rank, pattern(i % 4 == 0 ? 8 : 1000, i), {}));
        continue;
      }
      const std::uint64_t begin = sys().now_ns();
      while (!peer.try_peek() && sys().now_ns() - begin < 8 * kSecondNs) {
        rig.transport().block(10 * kSecondNs);
      }
      EXPECT_LT(sys().now_ns() - begin, 8 * kSecondNs) << i;
      EXPECT_TRUE(matches(peer.try_peek(), i % 4 == 0 ? 8 : 1000, i));
      peer.release();
    }
    context.barrier();
  });
}

} // namespace
} // namespace whorl::test
