// The choice between ordinary and non-temporal stores, with invented times.
#include "transports/fifo/store_policy.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

constexpr std::uint32_t kSlots = 4;

/// Sends `messages`; a message costs the sender and the receiver what `fill` and `empty` say for
/// the kind in use. Returns how many of them bypassed the caches.
struct Link {
  std::uint32_t fill[2], empty[2];
};
int send(StorePolicy& policy, const Link& link, int messages) {
  int past = 0;
  static_assert(sizeof(bool) == 1);
  std::uint32_t best_empty = UINT32_MAX;
  bool before = false;
  for (int i = 0; i < messages; ++i) {
    const bool nontemporal = policy.nontemporal();
    past += nontemporal ? 1 : 0;
    const bool timed = policy.timed();
    policy.filled(timed ? link.fill[nontemporal] : 0, policy.wants_pace() ? best_empty : 0);
    if (timed)
      best_empty = before ? std::min(best_empty, link.empty[nontemporal]) : link.empty[nontemporal];
    before = timed;
  }
  return past;
}

constexpr Link kNear{.fill = {35, 36}, .empty = {26, 75}};
constexpr Link kFar{.fill = {500, 100}, .empty = {60, 80}};

TEST(StorePolicy, KeepsOrdinaryStoresWhereReadingWouldBecomeSlow) {
  StorePolicy policy(kSlots);
  send(policy, kNear, 100);
  EXPECT_FALSE(policy.nontemporal());
  EXPECT_LT(send(policy, kNear, 100'000), 1'000) << "trials cost too much";
}

TEST(StorePolicy, BypassesCachesWhereWritingIsSlow) {
  StorePolicy policy(kSlots);
  send(policy, kFar, 3 * kSlots + 8);
  EXPECT_TRUE(policy.nontemporal()) << "a first trial is enough";
  EXPECT_GT(send(policy, kFar, 100'000), 99'000) << "trials cost too much";
}

TEST(StorePolicy, FollowsTheLink) {
  StorePolicy policy(kSlots);
  for (int i = 0; i < 5; ++i) {
    send(policy, kFar, 9'000);
    EXPECT_TRUE(policy.nontemporal()) << "round " << i;
    send(policy, kNear, 9'000);
    EXPECT_FALSE(policy.nontemporal()) << "round " << i;
  }
}

TEST(StorePolicy, APaceIsPicosecondsPerByte) {
  EXPECT_EQ(pace_of(1'000, 1'000), 1'000U);
  EXPECT_EQ(pace_of(UINT64_MAX / 2'000, 1), UINT32_MAX);
}

} // namespace
} // namespace whorl
