// Tests endpoints over RDMA devices in memory: messages in torn and delayed writes, credits, room
// in the queue, and failures of requests.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/unit/transports/verbs_endpoints.h"

namespace whorl::verbs_test {
namespace {

using ::testing::HasSubstr;

TEST_F(VerbsEndpoints, CarryEverySizeAndWrapAround) {
  for (int round = 0; round < 3; ++round) {
    for (int size = 0; size <= static_cast<int>(kSlotBytes); ++size) {
      ASSERT_TRUE(a.send(static_cast<std::size_t>(size), size));
      ASSERT_EQ(b.receive(size), size);
    }
  }
}

class VerbsEndpointsWithoutInline : public VerbsEndpoints {
 protected:
  VerbsEndpointsWithoutInline() : VerbsEndpoints({.inline_bytes = 0}) {}
};
TEST_F(VerbsEndpointsWithoutInline, CarryEverySize) {
  for (int size = 0; size <= static_cast<int>(kSlotBytes); ++size) {
    ASSERT_TRUE(a.send(static_cast<std::size_t>(size), size));
    ASSERT_EQ(b.receive(size), size);
  }
  EXPECT_EQ(fabric.inlined(), 0);
}

TEST_F(VerbsEndpoints, AMessageIsOneWriteAndFewComplete) {
  constexpr int kMessages = 400;
  const int before = fabric.writes();
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(a.send(i % 2 == 0 ? verbs::kSmallBytes : 150, i));
    ASSERT_GE(b.receive(i), 0);
  }
  const int credits = kMessages / static_cast<int>(a.layout.batch());
  EXPECT_EQ(fabric.writes() - before, kMessages + credits);
  EXPECT_EQ(fabric.inlined(), fabric.writes());
  EXPECT_LT(fabric.completions(), kMessages / 4);
}

TEST_F(VerbsEndpoints, AMessageIsSeenOnlyWhenItsLineIsWhole) {
  std::vector<int> order(8);
  std::iota(order.begin(), order.end(), 0);
  int seed = 0, looks = 0, wrong = 0;
  std::size_t size = 0;
  // The line is whole as well if the words that are still to come are equal to the old ones.
  const auto look = [&] {
    const Message message = b.endpoint->try_peek();
    ++looks;
    if (!message) return;
    wrong += message.bytes != size ||
             message.fingerprint.sequence != static_cast<std::uint32_t>(seed) ||
             std::any_of(message.data, message.data + message.bytes,
                         [&](std::byte byte) { return byte != static_cast<std::byte>(seed); });
  };
  // Each word is the first and the last to arrive, on lines with older messages.
  for (int turn = 0; turn < 64; ++turn) {
    std::rotate(order.begin(), order.begin() + 1, order.end());
    if (turn % 8 == 0) std::reverse(order.begin(), order.end());
    fabric.tear_lines(order, look);
    for (const std::size_t bytes : {0U, 8U, 32U, 200U}) {
      size = bytes;
      seed = seed % 100 + 1;
      ASSERT_TRUE(a.send(size, seed));
      ASSERT_EQ(wrong, 0) << "order that ends with word " << order.back();
      ASSERT_EQ(b.receive(seed), static_cast<int>(size));
    }
  }
  EXPECT_EQ(looks, 64 * (4 * 8 + 2));
}

TEST_F(VerbsEndpoints, APayloadIsSeenOnlyWhenTheDeviceHasReportedIt) {
  fabric.hold_notices(true);
  ASSERT_TRUE(a.send(200, 7));
  EXPECT_EQ(b.receive(7), -1) << "the line is there";
  fabric.hold_notices(false);
  EXPECT_EQ(b.receive(7), 200);
}

TEST_F(VerbsEndpoints, SmallMessagesAreSeenBeforeTheDeviceReportsThem) {
  fabric.hold_notices(true);
  for (std::uint64_t i = 0; i < a.layout.places(); ++i) {
    ASSERT_TRUE(a.send(8, 1));
    ASSERT_EQ(b.receive(1), 8);
  }
  fabric.hold_notices(false);
  // Late notices of released messages do no harm to those that took their places.
  ASSERT_TRUE(a.send(100, 2));
  EXPECT_EQ(b.receive(2), 100);
}

TEST_F(VerbsEndpoints, NoticesFindRoomHoweverLateTheyAreLookedAt) {
  // One direction: the sender only reads credits, the receiver only lines.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(a.send(8, i % 100)) << i;
    ASSERT_EQ(b.receive(i % 100), 8);
  }
  // As many messages as fit, both ways.
  for (int round = 0; round < 100; ++round) {
    int sent = 0;
    while (a.send(40, round) && b.send(8, round)) ++sent;
    EXPECT_GE(sent, kSlots);
    for (int i = 0; i < sent; ++i) {
      ASSERT_EQ(b.receive(round), 40);
      ASSERT_EQ(a.receive(round), 8);
    }
    b.receive(round); // the last one of a, if b had no place for another
  }
  EXPECT_EQ(a.poll(), Progress::kIdle);
  EXPECT_EQ(b.poll(), Progress::kIdle);
}

TEST_F(VerbsEndpoints, SlotsAreGivenBackAFewAtATime) {
  const int places = static_cast<int>(a.layout.places());
  EXPECT_EQ(places, kSlots + static_cast<int>(a.layout.batch()) - 1);
  for (int i = 0; i < places; ++i) ASSERT_TRUE(a.send(8, i));
  EXPECT_FALSE(a.send(8, 0));
  EXPECT_TRUE(a.endpoint->was_stuck());
  EXPECT_FALSE(a.endpoint->was_stuck());
  ASSERT_EQ(b.receive(0), 8);
  EXPECT_FALSE(a.send(8, 0)) << "one of two";
  ASSERT_EQ(b.receive(1), 8);
  EXPECT_TRUE(a.send(8, places));
  EXPECT_TRUE(a.send(8, places + 1));
  EXPECT_FALSE(a.send(8, 0));
}

TEST_F(VerbsEndpoints, AnswersTellWhatWasReleased) {
  const int before = fabric.writes();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(a.send(i % 2 == 0 ? 8 : 100, i));
    ASSERT_GE(b.receive(i), 0);
    ASSERT_TRUE(b.send(i % 3 == 0 ? 8 : 100, i));
    ASSERT_GE(a.receive(i), 0);
  }
  EXPECT_EQ(fabric.writes() - before, 400) << "no write is only a credit";
}

TEST_F(VerbsEndpoints, CountsAndNumbersMayWrapAround) {
  for (int i = 0; i < 140'000; ++i) {
    ASSERT_TRUE(a.send(8, i % 100));
    ASSERT_EQ(b.receive(i % 100), 8);
    if (i % 3 != 0) continue;
    ASSERT_TRUE(b.send(8, i % 100));
    ASSERT_EQ(a.receive(i % 100), 8);
  }
}

TEST_F(VerbsEndpoints, WithoutCompletionsTheQueueFillsUpAndGoesOnAfterwards) {
  fabric.hold_completions(true);
  int sent = 0;
  while (sent < 1000 && a.send(100, sent)) {
    ASSERT_EQ(b.receive(sent), 100);
    ++sent;
  }
  EXPECT_LT(sent, 1000);
  EXPECT_FALSE(a.endpoint->flushed());
  fabric.hold_completions(false);
  for (int i = 0; i < 100; ++i, ++sent) {
    ASSERT_TRUE(a.send(100, sent)) << i;
    ASSERT_EQ(b.receive(sent), 100);
  }
  EXPECT_TRUE(a.endpoint->flushed());
}

TEST_F(VerbsEndpoints, ACreditThatFoundNoRoomFollows) {
  fabric.hold_completions(true);
  int number = 0;
  // Only b gives credits, until its queue is full.
  while (number < 1000 && a.send(0, number)) {
    b.receive(number++);
    fabric.hold_completions(false); // a's
    a.rails[0].completions->poll();
    fabric.hold_completions(true);
  }
  ASSERT_LT(number, 1000);
  fabric.hold_completions(false);
  b.poll();
  EXPECT_TRUE(a.send(0, number));
}

TEST_F(VerbsEndpoints, FlushedMeansThatAllIsInThePeersMemory) {
  EXPECT_TRUE(a.endpoint->flushed());
  fabric.hold_writes(true);
  ASSERT_TRUE(a.send(8, 1));
  EXPECT_FALSE(a.endpoint->flushed());
  EXPECT_FALSE(a.endpoint->flushed());
  a.judge.left = true;
  EXPECT_TRUE(a.endpoint->flushed()) << "nobody needs it";
  a.judge.left = false;
  fabric.hold_writes(false);
  EXPECT_TRUE(a.endpoint->flushed());
}

struct FailureCase {
  ibv_wc_status status;
  const char* words;
};
class VerbsFailures : public VerbsEndpoints, public ::testing::WithParamInterface<FailureCase> {};

TEST_P(VerbsFailures, AreSaidInWords) {
  fabric.fail_write(1, {GetParam().status, 0x5a});
  ASSERT_TRUE(a.send(100, 1));
  ASSERT_TRUE(a.send(100, 2));
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_THAT(a.judge.failure, HasSubstr(GetParam().words));
  EXPECT_THAT(a.judge.failure, HasSubstr("vendor's code 0x5a"));
  EXPECT_EQ(b.receive(1), -1);
  // Calls stay safe.
  a.send(100, 3);
  EXPECT_FALSE(a.endpoint->flushed());
  EXPECT_EQ(a.receive(0), -1);
}

INSTANTIATE_TEST_SUITE_P(
    , VerbsFailures,
    ::testing::Values(FailureCase{IBV_WC_RETRY_EXC_ERR, "the peer's RDMA device does not answer"},
                      FailureCase{IBV_WC_RNR_RETRY_EXC_ERR, "no room for a notification"},
                      FailureCase{IBV_WC_REM_ACCESS_ERR, "refuses access to the memory"},
                      FailureCase{IBV_WC_REM_OP_ERR, "could not carry out a request"},
                      FailureCase{IBV_WC_REM_INV_REQ_ERR, "does not accept a request"},
                      FailureCase{IBV_WC_LOC_PROT_ERR, "no longer registered"},
                      FailureCase{IBV_WC_LOC_QP_OP_ERR, "the sender's device does not accept"},
                      FailureCase{IBV_WC_WR_FLUSH_ERR, "failed before"},
                      FailureCase{IBV_WC_FATAL_ERR, "has failed"},
                      FailureCase{IBV_WC_GENERAL_ERR, "general error"}),
    [](const auto& failure) { return "Status" + std::to_string(failure.param.status); });

TEST_F(VerbsEndpoints, ARefusedPostIsAFailure) {
  fabric.refuse_posts(ENOMEM);
  ASSERT_TRUE(a.send(8, 1));
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_THAT(a.judge.failure, HasSubstr("requests are refused"));
}

TEST_F(VerbsEndpoints, AFailureTellsThatTheOwnPortHasNoLink) {
  fabric.fail_write(1, {IBV_WC_RETRY_EXC_ERR, 0});
  fabric.device(0).state = IBV_PORT_DOWN;
  ASSERT_TRUE(a.send(8, 1));
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_THAT(a.judge.failure, HasSubstr("the sender's port fake0:1 has no link"));
}

TEST_F(VerbsEndpoints, RefuseNonsenseInTheirMemory) {
  // A line that is whole, but larger than a slot.
  auto& line = *reinterpret_cast<verbs::Line*>(b.bytes() + b.layout.line(0));
  line.word = verbs::Line::make_word(1, 0, kSlotBytes + 1);
  line.seal = verbs::make_seal(line);
  EXPECT_FALSE(b.endpoint->try_peek());
  EXPECT_EQ(b.judge.nonsense, "a message larger than a slot");
  EXPECT_EQ(b.endpoint->progress(), Progress::kFailed);

  // A credit for messages that were never sent.
  for (std::uint64_t i = 0; i < a.layout.places(); ++i) ASSERT_TRUE(a.send(8, 1));
  auto& credit = *reinterpret_cast<verbs::Credit*>(a.bytes());
  credit = verbs::Credit::of(1000);
  credit.seal ^= 1;
  EXPECT_FALSE(a.send(8, 1));
  EXPECT_EQ(a.judge.nonsense, "") << "half written";
  credit = verbs::Credit::of(1000);
  EXPECT_FALSE(a.send(8, 1));
  EXPECT_EQ(a.judge.nonsense, "a count of released messages that was never sent");
}

TEST_F(VerbsEndpoints, RefuseANoticeForABufferThatWasNotOffered) {
  VerbsWrite write{.to = a.address().memory, .key = a.address().rails[0].key};
  write.notice = verbs::Notice::of_message(1, true);
  b.queue().post(write);
  EXPECT_EQ(a.poll(), Progress::kFailed);
  EXPECT_EQ(a.judge.nonsense, "a message to a buffer that was not offered");
}

} // namespace
} // namespace whorl::verbs_test
