// Tests of the arguments that calls with blocks of different sizes accept, and of the error for
// each wrong argument.
#include "api/check_v.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/unit/api/world.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr int kFloat32 = static_cast<int>(DataType::kFloat32);
constexpr int kRank = 1;
using Counts = std::array<std::size_t, 3>;

class CheckBlocksTest : public ::testing::Test {
 protected:
  /// Returns a correct call; its root, if there is one, is this rank. Blocks lie side by side.
  RawBlocksCall right(Collective collective) {
    RawBlocksCall raw{.call = {.function = "whorlCallv",
                               .collective = collective,
                               .send = send_.data(),
                               .recv = recv_.data(),
                               .count = counts_[kRank],
                               .type = kFloat32,
                               .peer = kRank}};
    if (sends_all(collective)) raw.send_counts = counts_.data();
    if (!sends_all(collective) || collective == Collective::kAllToAll) {
      raw.recv_counts = counts_.data();
    }
    return raw;
  }
  static bool sends_all(Collective collective) {
    return collective == Collective::kScatter || collective == Collective::kAllToAll;
  }

  Status check(const RawBlocksCall& raw) {
    request_ = {};
    return check_blocks(raw, world_.communicator(), request_);
  }
  /// Returns the sentence with which a call is refused, without its beginning.
  std::string refusal(const RawBlocksCall& raw) {
    const Status status = check(raw);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name_of(raw.call.collective);
    const std::string begin = "whorlCallv on rank 1 of 3: ";
    EXPECT_EQ(status.message().substr(0, begin.size()), begin);
    return status.ok() ? "accepted" : status.message().substr(begin.size());
  }

  test::World world_;
  Request request_;
  Counts counts_{3, 2, 4};
  std::array<float, 64> send_{}, recv_{};
};

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kReduceScatter,
                                       Collective::kAllToAll, Collective::kGather,
                                       Collective::kScatter};

std::byte* at(std::array<float, 64>& buffer, std::size_t element) {
  return reinterpret_cast<std::byte*>(buffer.data() + element);
}

TEST_F(CheckBlocksTest, BlocksLieSideBySideOrWhereTheyAreSaidToBe) {
  RawBlocksCall raw = right(Collective::kAllToAll);
  ASSERT_TRUE(check(raw).ok());
  ASSERT_NE(request_.blocks, nullptr);
  EXPECT_EQ(request_.table, nullptr);
  const Counts side_by_side{0, 3, 5}, displacements{20, 0, 10};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(request_.blocks->sends[rank].data, at(send_, side_by_side[rank]));
    EXPECT_EQ(request_.blocks->receives[rank].data, at(recv_, side_by_side[rank]));
    EXPECT_EQ(request_.blocks->sends[rank].count, counts_[rank]);
  }
  raw.recv_displacements = displacements.data();
  ASSERT_TRUE(check(raw).ok());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(request_.blocks->sends[rank].data, at(send_, side_by_side[rank]));
    EXPECT_EQ(request_.blocks->receives[rank].data, at(recv_, displacements[rank]));
  }
}

TEST_F(CheckBlocksTest, OnlyTheRootOfAGatherOrScatterHasBlocksOfAll) {
  ASSERT_TRUE(check(right(Collective::kGather)).ok());
  for (const auto& block : request_.blocks->receives) EXPECT_TRUE(block.used);
  EXPECT_TRUE(request_.blocks->sends[kRank].used);
  EXPECT_FALSE(request_.blocks->sends[0].used);
  RawBlocksCall elsewhere = right(Collective::kGather);
  elsewhere.call.peer = 2;
  elsewhere.call.recv = nullptr;
  elsewhere.recv_counts = nullptr;
  ASSERT_TRUE(check(elsewhere).ok());
  EXPECT_TRUE(request_.blocks->sends[2].used);
  for (const auto& block : request_.blocks->receives) EXPECT_FALSE(block.used);
  elsewhere = right(Collective::kScatter);
  elsewhere.call.peer = 2;
  elsewhere.call.send = nullptr;
  elsewhere.send_counts = nullptr;
  ASSERT_TRUE(check(elsewhere).ok());
  EXPECT_TRUE(request_.blocks->receives[2].used);
  for (const auto& block : request_.blocks->sends) EXPECT_FALSE(block.used);
}

TEST_F(CheckBlocksTest, WhatAllRanksKnowBecomesATable) {
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    ASSERT_TRUE(check(right(collective)).ok());
    EXPECT_EQ(request_.blocks, nullptr);
    ASSERT_NE(request_.table, nullptr);
    EXPECT_EQ(request_.table->total, 9U);
    EXPECT_EQ(request_.table->largest, 4U);
    EXPECT_FALSE(request_.table->even);
    const std::uint16_t hash = request_.table->hash;
    counts_ = {2, 2, 2};
    ASSERT_TRUE(check(right(collective)).ok());
    EXPECT_TRUE(request_.table->even);
    EXPECT_NE(request_.table->hash, hash);
    counts_ = {3, 2, 4};
  }
}

TEST_F(CheckBlocksTest, ArgumentsOfPlainCallsAreCheckedLikewise) {
  for (const Collective collective : kCollectives) {
    RawBlocksCall raw = right(collective);
    raw.call.type = 15;
    EXPECT_THAT(refusal(raw), HasSubstr("datatype is 15, which is none"));
    raw = right(collective);
    raw.call.peer = 3;
    if (has_root(collective)) {
      EXPECT_EQ(refusal(raw), "root is 3; it must be a rank from 0 to 2");
    }
    raw = right(collective);
    raw.call.op = 5;
    if (reduces(collective)) {
      EXPECT_THAT(refusal(raw), HasSubstr("op is 5, which is neither"));
    }
  }
}

TEST_F(CheckBlocksTest, ArraysOfCountsThatAreNull) {
  for (const Collective collective : kCollectives) {
    RawBlocksCall raw = right(collective);
    for (auto* const counts : {&raw.send_counts, &raw.recv_counts}) {
      if (*counts == nullptr) continue;
      const std::size_t* const kept = std::exchange(*counts, nullptr);
      const std::string name = counts == &raw.send_counts ? "sendcounts" : "recvcounts";
      EXPECT_EQ(refusal(raw), name + " is NULL; it needs one count for each of the 3 ranks");
      *counts = kept;
    }
  }
}

TEST_F(CheckBlocksTest, BuffersThatAreNull) {
  for (const Collective collective : kCollectives) {
    RawBlocksCall no_send = right(collective), no_recv = no_send;
    no_send.call.send = nullptr;
    no_recv.call.recv = nullptr;
    // A side with one block for each rank begins with rank 0's block.
    const bool all_sent = sends_all(collective) || collective == Collective::kReduceScatter;
    const bool all_received =
        collective != Collective::kReduceScatter && collective != Collective::kScatter;
    EXPECT_EQ(refusal(no_send),
              all_sent ? "sendbuff is NULL, but the block of rank 0 in it has 3 elements"
                       : "sendbuff is NULL, but the block of rank 1 in it has 2 elements");
    EXPECT_EQ(refusal(no_recv),
              all_received ? "recvbuff is NULL, but the block of rank 0 in it has 3 elements"
                           : "recvbuff is NULL, but the block of rank 1 in it has 2 elements");
    counts_ = {0, 0, 0};
    RawBlocksCall nothing = right(collective);
    nothing.call.send = nullptr;
    nothing.call.recv = nullptr;
    EXPECT_TRUE(check(nothing).ok()) << name_of(collective) << " of nothing needs no buffer";
    counts_ = {3, 2, 4};
  }
}

TEST_F(CheckBlocksTest, CountsAndDisplacementsThatOverflow) {
  for (const Collective collective : kCollectives) {
    for (const std::size_t count : {std::size_t{1} << 48U, SIZE_MAX / 4, SIZE_MAX}) {
      counts_ = {1, 1, count};
      EXPECT_THAT(refusal(right(collective)), HasSubstr("has " + std::to_string(count) +
                                                        " elements of float32 from 2 on, "
                                                        "which overflows the address space"));
    }
    counts_ = {3, 2, 4};
  }
  const Counts far{0, SIZE_MAX / 2, 8};
  RawBlocksCall raw = right(Collective::kAllToAll);
  raw.send_displacements = far.data();
  EXPECT_THAT(refusal(raw), HasSubstr("the block of rank 1 in sendbuff has 2 elements"));
  raw = right(Collective::kAllGather);
  raw.recv_displacements = far.data();
  EXPECT_THAT(refusal(raw), HasSubstr("the block of rank 1 in recvbuff has 2 elements"));
}

TEST_F(CheckBlocksTest, ARankSendsItselfWhatItReceivesFromItself) {
  const Counts other{3, 1, 4};
  for (const Collective collective : kCollectives) {
    if (collective == Collective::kReduceScatter) continue; // has one array of counts
    RawBlocksCall raw = right(collective);
    raw.call.count = 1;
    if (collective == Collective::kAllToAll) raw.send_counts = other.data();
    const std::string counts = collective == Collective::kScatter
                                   ? "sends 2 elements to itself and receives 1"
                                   : "sends 1 elements to itself and receives 2";
    EXPECT_EQ(refusal(raw), "this rank " + counts + " from itself; the two counts must be equal");
  }
}

TEST_F(CheckBlocksTest, ReceivedBlocksMustNotOverlap) {
  const Counts overlapping{0, 2, 8};
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kGather}) {
    RawBlocksCall raw = right(collective);
    raw.recv_displacements = overlapping.data();
    EXPECT_EQ(refusal(raw),
              "the blocks of ranks 0 and 1 in recvbuff overlap; check recvcounts and "
              "rdispls");
  }
  RawBlocksCall raw = right(Collective::kAllToAll);
  raw.send_displacements = overlapping.data();
  EXPECT_TRUE(check(raw).ok()) << "what is only read may be sent twice";
}

TEST_F(CheckBlocksTest, InPlaceThisRanksBlockIsAtTheSameAddress) {
  for (const Collective collective : {Collective::kAllGather, Collective::kGather}) {
    RawBlocksCall raw = right(collective);
    raw.call.send = recv_.data() + 3; // begins after rank 0's three elements
    EXPECT_TRUE(check(raw).ok()) << name_of(collective);
    raw.call.send = recv_.data() + 4;
    EXPECT_THAT(refusal(raw), HasSubstr("overlaps the block of rank 1 in recvbuff; in place, this "
                                        "rank's own block is at the same address in both"));
  }
  RawBlocksCall scatter = right(Collective::kScatter);
  scatter.call.recv = send_.data() + 3;
  EXPECT_TRUE(check(scatter).ok());
  scatter.call.recv = send_.data();
  EXPECT_THAT(refusal(scatter), HasSubstr("the block for rank 0 in sendbuff overlaps"));
  RawBlocksCall all = right(Collective::kAllToAll);
  all.call.send = recv_.data();
  EXPECT_THAT(refusal(all), HasSubstr("this operation cannot be done in place"));
}

TEST_F(CheckBlocksTest, ReduceScatterInPlace) {
  RawBlocksCall raw = right(Collective::kReduceScatter);
  for (std::size_t element = 0; element <= 9; ++element) {
    raw.call.recv = send_.data() + element;
    if (element == 3 || element == 9) {
      EXPECT_TRUE(check(raw).ok()) << element;
    } else {
      EXPECT_THAT(refusal(raw), HasSubstr("recvbuff overlaps the block of rank"));
    }
  }
}

TEST_F(CheckBlocksTest, EqualBlocksSideBySideAreAPlainCollective) {
  counts_ = {5, 5, 5};
  const Counts side_by_side{0, 5, 10}, apart{0, 6, 12};
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    RawBlocksCall raw = right(collective);
    const auto plain = plain_form(raw, 3);
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->count, 5U);
    EXPECT_EQ(plain->collective, collective);
    raw.recv_displacements = side_by_side.data();
    EXPECT_TRUE(plain_form(raw, 3).has_value());
    raw.recv_displacements = apart.data();
    EXPECT_FALSE(plain_form(raw, 3).has_value());
    raw.recv_counts = nullptr;
    EXPECT_FALSE(plain_form(raw, 3).has_value());
  }
  RawBlocksCall own = right(Collective::kAllGather);
  own.call.count = 4; // an error that the plain form would hide
  EXPECT_FALSE(plain_form(own, 3).has_value());
  for (const Collective collective :
       {Collective::kAllToAll, Collective::kGather, Collective::kScatter}) {
    EXPECT_FALSE(plain_form(right(collective), 3).has_value());
  }
  counts_ = {5, 5, 4};
  EXPECT_FALSE(plain_form(right(Collective::kReduceScatter), 3).has_value());
}

} // namespace
} // namespace whorl
