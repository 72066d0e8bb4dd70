// Tests of every transport: all others get the name of a rank that dies, leaves, gives up or never
// joins.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/conformance/rig.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Failures : public TransportTest {
 protected:
  std::vector<RankOutcome> on_ranks(int nranks,
                                    const std::function<void(Rig&, RankContext&)>& body) {
    const std::uint64_t job = fresh_job();
    return run_ranks(nranks, GetParam().mode, [&](RankContext& context) {
      Rig rig(context, GetParam(), job, {});
      const Status status = rig.connect();
      ASSERT_TRUE(status.ok()) << status.message();
      context.barrier(); // the set-up of a communicator also waits until all are connected
      body(rig, context);
    });
  }
};

/// Tries to receive from `peer` until the time is up, and drops all messages.
WaitResult waste_time(Rig& rig, int peer, std::uint64_t duration_ns) {
  return rig.wait(
      [&] {
        static_cast<void>(rig.to(peer).try_peek());
        return false;
      },
      duration_ns);
}

TEST_P(Failures, DeathOfARankReachesEveryWait) {
  if (GetParam().mode == Mode::kThreads) GTEST_SKIP() << "a thread does not die alone";
  const auto outcomes = on_ranks(4, [](Rig& rig, RankContext& context) {
    context.barrier();
    if (context.rank == 2) context.die();
    // Rank 0 waits for the dead rank, the others wait for living ranks.
    const int waits_for = context.rank == 0 ? 2 : context.rank == 1 ? 3 : 1;
    EXPECT_FALSE(rig.receive(waits_for));
    EXPECT_TRUE(rig.comm_error().is_set());
    EXPECT_EQ(rig.comm_error().status().code(), Code::kRemoteError);
    EXPECT_THAT(rig.comm_error().status().message(), HasSubstr("rank 2 (host testhost, pid "));
  });
  EXPECT_EQ(outcomes[2].killed, true);
  for (const int survivor : {0, 1, 3}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(survivor)].failures, "") << "rank " << survivor;
    EXPECT_FALSE(outcomes[static_cast<std::size_t>(survivor)].killed);
  }
}

TEST_P(Failures, DeathOfTheLowestRankReachesEveryWait) {
  if (GetParam().mode == Mode::kThreads) GTEST_SKIP() << "a thread does not die alone";
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    context.barrier();
    if (context.rank == 0) context.die();
    EXPECT_FALSE(rig.receive(3 - context.rank));
    EXPECT_THAT(rig.comm_error().status().message(), HasSubstr("rank 0 (host testhost, pid "));
  });
  EXPECT_EQ(outcomes[1].failures + outcomes[2].failures, "");
}

TEST_P(Failures, MessagesOfARankOutliveIt) {
  if (GetParam().mode == Mode::kThreads) GTEST_SKIP() << "a thread does not die alone";
  const auto outcomes = on_ranks(2, [](Rig& rig, RankContext& context) {
    if (context.rank == 1) {
      EXPECT_TRUE(rig.send(0, pattern(1000, 5), {}) && rig.flush());
      context.barrier();
      context.die();
    }
    context.barrier();
    EXPECT_TRUE(matches(rig.receive(1), 1000, 5));
    rig.to(1).release();
    EXPECT_FALSE(rig.receive(1));
  });
  EXPECT_EQ(outcomes[0].failures, "");
}

TEST_P(Failures, NotifiedErrorReachesABlockedPeer) {
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    if (context.rank == 1) {
      const Status comm_error = Status::error(Code::kInvalidArgument, "the root differs: 3 and 4");
      rig.transport().notify_peers(comm_error);
      rig.transport().notify_peers(Status::error(Code::kInvalidArgument, "said too late"));
    } else {
      EXPECT_FALSE(rig.receive(context.rank == 0 ? 2 : 1));
      EXPECT_EQ(rig.comm_error().status().code(), Code::kRemoteError);
      EXPECT_THAT(rig.comm_error().status().message(),
                  AllOf(HasSubstr("rank 1 "), HasSubstr("the root differs: 3 and 4")));
    }
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(Failures, LeavingIsAnErrorOnlyForThoseWhoWait) {
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    if (context.rank == 2) {
      EXPECT_TRUE(rig.send(0, pattern(64, 1), {}) && rig.send(1, pattern(64, 2), {}) &&
                  rig.flush());
      context.barrier();
      rig.destroy();
      context.barrier();
      context.barrier();
      return;
    }
    context.barrier();
    context.barrier();
    const int other = 1 - context.rank;
    // Ranks 0 and 1 continue without the rank that has left.
    EXPECT_EQ(waste_time(rig, other, 30'000'000), WaitResult::kTimedOut);
    EXPECT_TRUE(rig.send(other, pattern(100, 3), {}));
    EXPECT_TRUE(matches(rig.receive(other), 100, 3));
    rig.to(other).release();
    EXPECT_FALSE(rig.comm_error().is_set()) << rig.comm_error().status().message();
    // Messages sent before it left still arrive; a wait for a further message fails.
    EXPECT_TRUE(matches(rig.receive(2), 64, static_cast<std::uint64_t>(context.rank) + 1));
    rig.to(2).release();
    EXPECT_TRUE(rig.flush());
    context.barrier();
    EXPECT_FALSE(rig.receive(2));
    EXPECT_THAT(rig.comm_error().status().message(),
                AllOf(HasSubstr("rank 2 "), HasSubstr("has destroyed its communicator")));
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(Failures, LeavingIsNoErrorForThoseWhoWaitForAny) {
  if (GetParam().name == "minimal") GTEST_SKIP() << "has_ended() is left out";
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    if (context.rank != 0) {
      if (context.rank == 2) context.barrier();
      EXPECT_TRUE(rig.send(0, pattern(1000, 7), {}) && rig.flush());
      rig.destroy();
      if (context.rank == 1) context.barrier();
      context.barrier();
      return;
    }
    const auto take_from = [&](int peer) {
      return rig.wait([&] {
        const Message message = rig.to(peer).peek_arrived();
        if (!message) return false;
        EXPECT_TRUE(matches(message, 1000, 7));
        EXPECT_FALSE(rig.to(peer).has_ended());
        rig.to(peer).release();
        return true;
      });
    };
    const auto look_at = [&](int peer) {
      return rig.wait(
          [&] {
            EXPECT_FALSE(rig.to(peer).peek_arrived());
            return false;
          },
          100'000'000);
    };
    EXPECT_EQ(take_from(1), WaitResult::kReady);
    EXPECT_EQ(look_at(1), WaitResult::kTimedOut) << rig.comm_error().status().message();
    EXPECT_TRUE(rig.to(1).has_ended());
    EXPECT_FALSE(rig.to(2).has_ended());
    context.barrier();
    EXPECT_EQ(take_from(2), WaitResult::kReady);
    EXPECT_EQ(look_at(2), WaitResult::kTimedOut) << rig.comm_error().status().message();
    EXPECT_TRUE(rig.to(2).has_ended());
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(Failures, ExitAfterLeavingIsNoDeath) {
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    context.barrier();
    if (context.rank == 1) return; // destroys the rig, then the process exits
    const int other = 2 - context.rank;
    EXPECT_EQ(waste_time(rig, other, 100'000'000), WaitResult::kTimedOut);
    EXPECT_EQ(rig.comm_error().status().message(), "");
    EXPECT_TRUE(rig.send(other, pattern(100, 3), {}) && rig.flush());
    EXPECT_TRUE(matches(rig.receive(other), 100, 3));
    rig.to(other).release();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(Failures, MissingRankIsNamed) {
  const std::array jobs{fresh_job(), fresh_job()};
  const auto failures = run_at_once(2, [&](int i) {
    const int missing = 2 * i;
    const std::uint64_t job = jobs.at(static_cast<std::size_t>(i));
    const auto outcomes = run_ranks(3, GetParam().mode, [&](RankContext& context) {
      Rig rig(context, GetParam(), job, {.timeout_ns = 300'000'000});
      if (context.rank == missing) {
        context.barrier();
        return;
      }
      const Status status = rig.connect();
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(missing) + " (host"));
      context.barrier();
    });
    EXPECT_EQ(failures_of(outcomes), "") << "missing rank " << missing;
  });
  EXPECT_EQ(failures, "");
}

TEST_P(Failures, CommErrorEndsTheConnecting) {
  const std::uint64_t job = fresh_job();
  const auto outcomes = run_ranks(2, GetParam().mode, [&](RankContext& context) {
    Rig rig(context, GetParam(), job, {});
    if (context.rank == 0) {
      rig.comm_error().set(Status::error(Code::kInvalidUsage, "enough"));
      const Status status = rig.connect();
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr("enough"));
    }
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(Failures, DestructionWaitsForNobody) {
  const auto outcomes = on_ranks(3, [](Rig& rig, RankContext& context) {
    if (context.rank == 0) {
      EXPECT_TRUE(rig.send(1, pattern(10, 1), {}));
      rig.destroy();
    }
    context.barrier(); // the others still hold their endpoints
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Transports, Failures, ::testing::ValuesIn(transport_kinds()),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(TransportsFull, Failures, ::testing::ValuesIn(more_transport_kinds()),
                         name_of_kind);

} // namespace
} // namespace whorl::test
