// Tests of the messages by which the ranks of a host meet, as untrusted bytes.
#include "node/offer.h"

#include <gtest/gtest.h>

#include <array>

#include "node/fd_message.h"

namespace whorl {
namespace {

constexpr std::array kMembers{0, 2, 7};

TEST(NodeHello, SurvivesTheTrip) {
  for (const bool heap : {false, true}) {
    const auto decoded = NodeHello::decode(NodeHello{.heap = heap}.encode(), heap ? 1 : 0);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->heap, heap);
  }
}

TEST(NodeHello, WhatDoesNotFitItsDescriptorsIsRefused) {
  auto body = NodeHello{.heap = true}.encode();
  EXPECT_FALSE(NodeHello::decode(body, 0));
  EXPECT_FALSE(NodeHello::decode(body, 2));
  EXPECT_FALSE(NodeHello::decode(std::span(body).first(body.size() - 1), 1));
  EXPECT_FALSE(NodeHello::decode({}, 0));
  body[4] = std::byte{2};
  EXPECT_FALSE(NodeHello::decode(body, 2));
  body[4] = std::byte{1};
  body.push_back(std::byte{0});
  EXPECT_FALSE(NodeHello::decode(body, 1));
}

TEST(NodeOffer, SurvivesTheTrip) {
  NodeOffer offer;
  offer.entries = {{FdKind::kHeap, 0}, {FdKind::kPidfd, 2}, {FdKind::kOutbox, 7}};
  const auto decoded = NodeOffer::decode(offer.encode(), 4, kMembers); // the first is the segment's
  ASSERT_TRUE(decoded);
  EXPECT_FALSE(decoded->failed);
  EXPECT_EQ(decoded->entries, offer.entries);
}

TEST(NodeOffer, OfStrangersIsRefused) {
  NodeOffer offer;
  offer.entries = {{FdKind::kHeap, 1}}; // not a rank of the host
  EXPECT_FALSE(NodeOffer::decode(offer.encode(), 2, kMembers));
  offer.entries = {{FdKind::kHeap, -1}};
  EXPECT_FALSE(NodeOffer::decode(offer.encode(), 2, kMembers));
  offer.entries = {{static_cast<FdKind>(4), 2}};
  EXPECT_FALSE(NodeOffer::decode(offer.encode(), 2, kMembers));
  EXPECT_FALSE(NodeOffer::decode(NodeOffer().encode(), 0, kMembers)) << "no segment";
  EXPECT_FALSE(NodeOffer::decode(NodeOffer().encode(), 2, kMembers)) << "too few entries";
}

TEST(NodeOffer, AReasonIsShortAndPrintable) {
  const auto decoded =
      NodeOffer::decode(NodeOffer::failure("no memory \x1b[31m left").encode(), 0, kMembers);
  ASSERT_TRUE(decoded);
  EXPECT_TRUE(decoded->failed);
  EXPECT_EQ(decoded->reason, "no memory  [31m left");
  EXPECT_LE(NodeOffer::failure(std::string(1 << 20, 'x')).encode().size(), kMaxMessageBytes);
}

} // namespace
} // namespace whorl
