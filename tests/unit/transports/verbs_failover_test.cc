// Tests endpoints with two rails over RDMA devices in memory, one of which fails.
#include <gmock/gmock.h>

#include "tests/unit/transports/verbs_endpoints.h"

namespace whorl::verbs_test {
namespace {

using ::testing::HasSubstr;

/// Two ranks with two rails between them. Large messages take the second one and the first in turn,
/// everything else the first.
class VerbsRails : public VerbsHeap {
 protected:
  VerbsRails() : VerbsHeap(2) {}
  /// Lets both sides handle the failure of a rail.
  void settle() {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(a.poll(), Progress::kIdle);
      EXPECT_EQ(b.poll(), Progress::kIdle);
      pass_reports();
    }
  }
  void expect_no_error() {
    for (const Side* side : {&a, &b}) {
      EXPECT_EQ(side->judge.failure, "");
      EXPECT_EQ(side->judge.nonsense, "");
    }
  }
};

TEST_F(VerbsRails, LargeMessagesTakeTheRailsInTurn) {
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(a.send(200, i));
    ASSERT_EQ(b.receive(i), 200);
  }
  EXPECT_EQ(a.queue(0).posted(), 4U);
  EXPECT_EQ(a.queue(1).posted(), 4U);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(a.send(8, i));
    ASSERT_EQ(b.receive(i), 8);
  }
  EXPECT_EQ(a.queue(1).posted(), 4U);
}

TEST_F(VerbsRails, OrderIsKeptWhicheverRailIsFaster) {
  fabric.hold_writes(true);
  ASSERT_TRUE(a.send(200, 1)); // by rail 0
  fabric.hold_device(0, true);
  fabric.hold_writes(false);
  ASSERT_TRUE(a.send(200, 2)); // by rail 1
  EXPECT_EQ(b.receive(1), -1);
  fabric.hold_device(0, false);
  EXPECT_EQ(b.receive(1), 200);
  EXPECT_EQ(b.receive(2), 200);
}

TEST_F(VerbsRails, WhatALostRailHadGoesByAnother) {
  fabric.hold_device(1, true);
  for (int i = 1; i <= 6; ++i) ASSERT_TRUE(a.send(i % 3 == 0 ? 8 : 200, i));
  EXPECT_EQ(b.receive(1), 200);
  EXPECT_EQ(b.receive(2), -1);
  fabric.fail_device(1, {IBV_WC_RETRY_EXC_ERR, 0x81});
  settle();
  for (int i = 2; i <= 6; ++i) ASSERT_EQ(b.receive(i), i % 3 == 0 ? 8 : 200) << i;
  EXPECT_TRUE(a.endpoint->flushed());
  // The other rail has all from now on, in both directions and over many rounds.
  const std::uint64_t before = a.queue(1).posted();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(a.send(200, i));
    ASSERT_TRUE(b.send(150, i));
    ASSERT_EQ(b.receive(i), 200);
    ASSERT_EQ(a.receive(i), 150);
  }
  EXPECT_EQ(a.queue(1).posted(), before);
  expect_no_error();
}

TEST_F(VerbsRails, TheRailOfCreditsMayBeLost) {
  const int places = static_cast<int>(a.layout.places());
  for (int i = 0; i < places; ++i) ASSERT_TRUE(a.send(8, i));
  EXPECT_FALSE(a.send(8, 0));
  fabric.hold_device(0, true); // credits of b
  for (int i = 0; i < places; ++i) ASSERT_EQ(b.receive(i), 8);
  EXPECT_FALSE(a.send(8, 0));
  fabric.fail_device(0, {IBV_WC_RETRY_EXC_ERR, 0x81});
  settle();
  ASSERT_TRUE(a.send(8, 1)) << "the count was told again";
  EXPECT_EQ(b.receive(1), 8);
  expect_no_error();
}

TEST_F(VerbsRails, MessagesFromAndToTheHeapGoAgainFromThere) {
  std::memset(target, 0x77, kBytes);
  ASSERT_TRUE(a.send(8, 9)); // so that the next one takes rail 1
  ASSERT_EQ(b.receive(9), 8);
  ASSERT_TRUE(offer(2, kBytes, 3));
  fabric.hold_device(1, true);
  ASSERT_TRUE(publish(kBytes, 3));
  EXPECT_LT(a.endpoint->released(), 2U);
  fabric.fail_device(1, {IBV_WC_RETRY_EXC_ERR, 0x81});
  a.poll();
  EXPECT_LT(a.endpoint->released(), 2U) << "the source is still needed";
  settle();
  EXPECT_EQ(a.endpoint->released(), 2U);
  EXPECT_EQ(b.endpoint->try_peek().data, target);
  EXPECT_EQ(b.receive(3), static_cast<int>(kBytes));
  // The other rail still does it.
  ASSERT_TRUE(offer(3, kBytes, 4));
  ASSERT_TRUE(publish(kBytes, 4));
  EXPECT_EQ(b.endpoint->try_peek().data, target);
  expect_no_error();
}

TEST_F(VerbsRails, ACopiedMessageByAnotherRailKeepsNoSource) {
  ASSERT_TRUE(a.send(8, 1)); // by rail 0, without a completion
  ASSERT_TRUE(publish(kBytes, 2));
  EXPECT_EQ(a.endpoint->released(), 2U);
}

TEST_F(VerbsRails, WhatHasArrivedIsNotSentAgain) {
  fabric.hold_completions(true); // so that a does not know
  ASSERT_TRUE(a.send(8, 9));
  ASSERT_EQ(b.receive(9), 8);
  ASSERT_TRUE(a.send(200, 1)); // by rail 1
  const int before = fabric.writes();
  fabric.fail_device(1, {IBV_WC_RETRY_EXC_ERR, 0x81});
  fabric.hold_completions(false);
  settle();
  EXPECT_EQ(fabric.writes() - before, 2) << "the credits, of both sides";
  EXPECT_EQ(b.receive(1), 200);
  expect_no_error();
}

TEST_F(VerbsRails, ASuspectedRailIsGivenUp) {
  a.endpoint->suspect(0);
  settle();
  EXPECT_TRUE(a.queue(0).failed());
  EXPECT_TRUE(b.queue(0).failed());
  ASSERT_TRUE(a.send(200, 1));
  EXPECT_EQ(b.receive(1), 200);
  a.endpoint->suspect(1);
  EXPECT_EQ(a.poll(), Progress::kIdle) << "the last one is kept";
  EXPECT_FALSE(a.queue(1).failed());
  expect_no_error();
}

TEST_F(VerbsRails, AnIdleEndpointIsLookedAfterUntilTheDeviceHasReportedAll) {
  ASSERT_TRUE(a.send(8, 9)); // so that the next one takes rail 1
  ASSERT_TRUE(a.send(200, 1));
  fabric.hold_notices(true);
  b.endpoint->suspect(1);
  for (int i = 0; i < 3; ++i) b.watch.serve();
  EXPECT_TRUE(b.queue(1).failed());
  EXPECT_TRUE(b.judge.reports.empty());
  fabric.hold_notices(false);
  b.watch.serve();
  ASSERT_EQ(b.judge.reports.size(), 1U);
  EXPECT_TRUE(b.judge.reports[0].has(2));
}

TEST_F(VerbsRails, OfALostDeviceSmallMessagesAreKnownWithoutNotices) {
  fabric.hold_notices(true);
  ASSERT_TRUE(a.send(8, 1));
  fabric.refuse_state(IBV_QPS_ERR, EIO); // and no notice comes any more
  b.endpoint->suspect(0);
  b.poll();
  ASSERT_EQ(b.judge.reports.size(), 1U);
  EXPECT_TRUE(b.judge.reports[0].has(1));
  EXPECT_FALSE(b.judge.reports[0].has(2));
  EXPECT_EQ(b.receive(1), 8);
}

/// Two ranks with three rails between them.
class VerbsThreeRails : public VerbsEndpoints {
 protected:
  VerbsThreeRails() : VerbsEndpoints({.rails = 3}) {}
};

TEST_F(VerbsThreeRails, TwoMayFailOneAfterTheOther) {
  int sent = 0, received = 0;
  for (const std::size_t lost : {2U, 0U}) {
    fabric.hold_device(lost, true);
    while (a.send(sent % 4 == 0 ? 8 : 200, sent)) ++sent;
    fabric.fail_device(lost, {IBV_WC_RETRY_EXC_ERR, 0x81});
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(a.poll(), Progress::kIdle);
      EXPECT_EQ(b.poll(), Progress::kIdle);
      pass_reports();
    }
    for (; received < sent; ++received) {
      ASSERT_EQ(b.receive(received), received % 4 == 0 ? 8 : 200) << received;
    }
    a.poll();
  }
  EXPECT_GT(sent, static_cast<int>(a.layout.places()));
  const std::uint64_t before = a.queue(1).posted();
  ASSERT_TRUE(a.send(200, 1));
  EXPECT_EQ(a.queue(1).posted(), before + 1);
  EXPECT_EQ(b.receive(1), 200);
  EXPECT_EQ(a.judge.failure + b.judge.failure, "");
}

TEST_F(VerbsRails, TheLastRailThatFailsIsTheError) {
  a.endpoint->suspect(0);
  settle();
  fabric.fail_device(1, {IBV_WC_RETRY_EXC_ERR, 0x81});
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_THAT(a.judge.failure, HasSubstr("failed before"));
}

TEST_F(VerbsRails, BothRailsMayFailAtOnceOneOnEachSide) {
  a.endpoint->suspect(0);
  b.endpoint->suspect(1);
  a.poll();
  b.poll();
  pass_reports();
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_EQ(b.poll(), Progress::kFailed);
}

TEST_F(VerbsRails, RefuseReportsThatMakeNoSense) {
  a.endpoint->take_report({.rail = 2});
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_EQ(a.judge.nonsense, "a malformed report of an RDMA connection");
  b.endpoint->take_report({.rail = 0, .received = 1});
  EXPECT_EQ(b.poll(), Progress::kFailed);
}

} // namespace
} // namespace whorl::verbs_test
