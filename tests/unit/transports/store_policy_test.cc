// The choice between ordinary and streaming stores, with invented times.
#include "transports/fifo/store_policy.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

constexpr std::uint32_t kSlots = 4;

/// Sends `messages`; a message costs the sender and the receiver what `fill` and `empty` say for
/// the kind in use. Returns how many of them were streamed.
struct Link {
  std::uint32_t fill[2], empty[2];
};
int send(StorePolicy& policy, const Link& link, int messages) {
  int streamed = 0;
  static_assert(sizeof(bool) == 1);
  std::uint32_t best_empty = UINT32_MAX;
  bool before = false;
  for (int i = 0; i < messages; ++i) {
    const bool streaming = policy.streaming();
    streamed += streaming ? 1 : 0;
    const bool timed = policy.timed();
    policy.filled(timed ? link.fill[streaming] : 0, policy.wants_pace() ? best_empty : 0);
    if (timed)
      best_empty = before ? std::min(best_empty, link.empty[streaming]) : link.empty[streaming];
    before = timed;
  }
  return streamed;
}

constexpr Link kNear{.fill = {35, 36}, .empty = {26, 75}};
constexpr Link kFar{.fill = {500, 100}, .empty = {60, 80}};

TEST(StorePolicy, KeepsOrdinaryStoresWhereReadingWouldBecomeSlow) {
  StorePolicy policy(kSlots);
  send(policy, kNear, 100);
  EXPECT_FALSE(policy.streaming());
  EXPECT_LT(send(policy, kNear, 100'000), 1'000) << "trials cost too much";
}

TEST(StorePolicy, StreamsWhereWritingIsSlow) {
  StorePolicy policy(kSlots);
  send(policy, kFar, 3 * kSlots + 8);
  EXPECT_TRUE(policy.streaming()) << "a first trial is enough";
  EXPECT_GT(send(policy, kFar, 100'000), 99'000) << "trials cost too much";
}

TEST(StorePolicy, FollowsTheLink) {
  StorePolicy policy(kSlots);
  for (int i = 0; i < 5; ++i) {
    send(policy, kFar, 9'000);
    EXPECT_TRUE(policy.streaming()) << "round " << i;
    send(policy, kNear, 9'000);
    EXPECT_FALSE(policy.streaming()) << "round " << i;
  }
}

TEST(StorePolicy, APaceIsPicosecondsPerByte) {
  EXPECT_EQ(pace_of(1'000, 1'000), 1'000U);
  EXPECT_EQ(pace_of(UINT64_MAX / 2'000, 1), UINT32_MAX);
}

} // namespace
} // namespace whorl
