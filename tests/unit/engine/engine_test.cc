// Tests of batches of requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "ranks.h"

namespace whorl {
namespace {

using test::Ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

Request all_reduce(const std::vector<int>& in, std::vector<int>& out) {
  return {.collective = Collective::kAllReduce,
          .type = DataType::kInt32,
          .count = in.size(),
          .send = in.data(),
          .recv = out.data()};
}

Request transfer(Collective collective, int peer, std::vector<int>& data) {
  return {.collective = collective,
          .type = DataType::kInt32,
          .peer = peer,
          .count = data.size(),
          .send = data.data(),
          .recv = data.data()};
}

RawCall raw(const std::vector<int>& in, std::vector<int>& out) {
  return {.collective = Collective::kAllReduce,
          .send = in.data(),
          .recv = out.data(),
          .count = in.size(),
          .type = static_cast<int>(DataType::kInt32)};
}

std::vector<Progress> done(std::size_t ranks) { return {ranks, Progress::kDone}; }

TEST(Engine, CarriesOutCollectivesOfABatchInOrder) {
  constexpr int kRanks = 3;
  Ranks ranks(kRanks);
  std::vector<std::vector<int>> in, once, twice;
  std::vector<std::vector<Request>> batches;
  for (int rank = 0; rank < kRanks; ++rank) {
    in.emplace_back(5000, rank + 1);
  }
  once = twice = in;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    // The second operation reads what the first one writes.
    batches.push_back({all_reduce(in[rank], once[rank]), all_reduce(once[rank], twice[rank])});
    ASSERT_TRUE(ranks.engines[rank]->start(batches[rank]).ok());
  }
  EXPECT_EQ(ranks.advance(), done(kRanks));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(once[rank], std::vector<int>(5000, 6));
    EXPECT_EQ(twice[rank], std::vector<int>(5000, 18));
    EXPECT_THAT(ranks.engines[rank]->waiting(), HasSubstr("is idle"));
    EXPECT_GT(ranks.engines[rank]->plan_bytes(), 0U);
  }
  EXPECT_TRUE(ranks.empty());
}

TEST(Engine, RepeatsACallWithOtherBuffersOnly) {
  Ranks ranks(2);
  std::vector<int> in(100, 1), out(100), short_in(99, 1);
  Engine& first = *ranks.engines[0];
  EXPECT_FALSE(first.matches_last_call(raw(in, out))) << "there is no last call";
  const std::vector<Request> batch{all_reduce(in, out)};
  std::vector<std::vector<int>> theirs(2, std::vector<int>(100, 2));
  const std::vector<Request> other{all_reduce(theirs[0], theirs[1])};
  ASSERT_TRUE(first.start(batch).ok() && ranks.engines[1]->start(other).ok());
  ASSERT_EQ(ranks.advance(), done(2));
  EXPECT_EQ(out, std::vector<int>(100, 3));

  std::vector<int> new_in(100, 10), new_out(100);
  EXPECT_TRUE(first.matches_last_call(raw(in, out)));
  EXPECT_TRUE(first.matches_last_call(raw(new_in, new_out)));
  EXPECT_FALSE(first.matches_last_call(raw(short_in, out))) << "another count";
  RawCall call = raw(in, out);
  call.op = static_cast<int>(ReduceOp::kMax);
  EXPECT_FALSE(first.matches_last_call(call));
  call = raw(in, out);
  call.recv = in.data() + 1;
  EXPECT_FALSE(first.matches_last_call(call)) << "buffers that overlap are to be checked";
  call.send = nullptr;
  EXPECT_FALSE(first.matches_last_call(call));

  first.repeat(Collective::kAllReduce, new_in.data(), new_out.data());
  ranks.engines[1]->repeat(Collective::kAllReduce, theirs[0].data(), theirs[1].data());
  EXPECT_EQ(ranks.advance(), done(2));
  EXPECT_EQ(new_out, std::vector<int>(100, 12));
  EXPECT_EQ(theirs[1], new_out);
  EXPECT_EQ(out, std::vector<int>(100, 3)) << "buffers of the call before";
}

TEST(Engine, DecidesAnewAboutTheCachesAfterACallInPlace) {
  Ranks ranks(2);
  std::vector<std::vector<int>> data(2, std::vector<int>(100, 1));
  const std::vector<int> in(100, 1);
  std::vector<int> out(100);
  std::vector<std::vector<Request>> batches;
  for (std::vector<int>& mine : data) batches.push_back({all_reduce(mine, mine)});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(ranks.engines[rank]->start(batches[rank]).ok());
  }
  ASSERT_EQ(ranks.advance(), done(2));
  EXPECT_EQ(data[0], std::vector<int>(100, 2));
  EXPECT_TRUE(ranks.engines[0]->matches_last_call(raw(data[0], data[0])));
  EXPECT_FALSE(ranks.engines[0]->matches_last_call(raw(in, out)));
}

TEST(Engine, CarriesOutTransfersAtOnceAndInOrderForEachPeer) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 10'000; // several windows
  Ranks ranks(kRanks);
  std::vector<std::vector<std::vector<int>>> out(kRanks), in(kRanks);
  std::vector<std::vector<Request>> batches(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    out[r].reserve(4), in[r].reserve(4);
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i < 2; ++i) {
        out[r].emplace_back(kCount, 100 * rank + 10 * peer + i);
        in[r].emplace_back(kCount, -1);
        // Everybody sends first, which would be a deadlock one after the other.
        batches[r].push_back(transfer(Collective::kSend, peer, out[r].back()));
      }
    }
    std::size_t next = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i < 2; ++i) {
        batches[r].push_back(transfer(Collective::kRecv, peer, in[r][next++]));
      }
    }
    ASSERT_TRUE(ranks.engines[r]->start(batches[r]).ok());
  }
  EXPECT_EQ(ranks.advance(), done(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    std::size_t next = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(in[static_cast<std::size_t>(rank)][next++],
                  std::vector<int>(kCount, 100 * peer + 10 * rank + i));
      }
    }
  }
}

TEST(Engine, SaysForWhomItWaits) {
  Ranks ranks(2);
  std::vector<int> in(8, 1), out(8);
  const std::vector<Request> batch{all_reduce(in, out)};
  ASSERT_TRUE(ranks.engines[0]->start(batch).ok());
  EXPECT_EQ(ranks.advance()[0], Progress::kIdle);
  EXPECT_THAT(ranks.engines[0]->waiting(),
              AllOf(HasSubstr("rank 0"), HasSubstr("in allreduce number 1 of 8 int32"),
                    HasSubstr("waiting for rank 1"), HasSubstr("while receiving")));
}

TEST(Engine, NamesTheFieldInWhichTwoCallsDiffer) {
  Ranks ranks(2);
  std::vector<int> in(8, 1), out(8, -1), longer(9, 1), theirs(9, -1);
  const std::vector<Request> ours{all_reduce(in, out)}, other{all_reduce(longer, theirs)};
  ASSERT_TRUE(ranks.engines[0]->start(ours).ok() && ranks.engines[1]->start(other).ok());
  const std::vector<Progress> ended = ranks.advance();
  EXPECT_THAT(ended, ::testing::Contains(Progress::kFailed));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    if (ended[rank] != Progress::kFailed) continue;
    const Status failure = ranks.engines[rank]->failure();
    EXPECT_EQ(failure.code(), Code::kInvalidUsage);
    EXPECT_THAT(failure.message(), AllOf(HasSubstr("differ in count ("), HasSubstr("rank 0"),
                                         HasSubstr("rank 1"), HasSubstr("allreduce number 1")));
  }
  EXPECT_EQ(out, std::vector<int>(8, -1)) << "nothing of another call is written";
  EXPECT_EQ(theirs, std::vector<int>(9, -1));
}

TEST(Engine, RefusesAWorkspaceBeyondTheBudgetBeforeItSends) {
  Ranks ranks(4, /*workspace_bytes=*/16, "gather:binomial");
  std::vector<int> in(1000, 1), out(4000);
  std::vector<Request> batch{all_reduce(in, out)};
  batch[0].collective = Collective::kGather;
  Engine& collects = *ranks.engines[2]; // holds the block of rank 3 until it is sent to rank 0
  ASSERT_TRUE(collects.start(batch).ok());
  EXPECT_EQ(collects.advance(), Progress::kFailed);
  EXPECT_EQ(collects.failure().code(), Code::kInvalidUsage);
  EXPECT_THAT(collects.failure().message(),
              AllOf(HasSubstr("gather of 1000 int32"), HasSubstr("on rank 2 needs a workspace of"),
                    HasSubstr("the memory budget leaves 16"), HasSubstr("WHORL_MEMORY_BUDGET")));
  EXPECT_EQ(collects.workspace_bytes(), 0U);
  EXPECT_TRUE(ranks.empty());
}

} // namespace
} // namespace whorl
