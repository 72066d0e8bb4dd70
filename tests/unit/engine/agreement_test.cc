// Tests that operations write no output while it is not known that all ranks make the same call.
#include "engine/agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ranks.h"

namespace whorl {
namespace {

using test::Ranks;

constexpr std::int32_t kUntouched = -1;

/// Calls of all ranks, with their buffers.
struct Calls {
  std::vector<std::vector<std::int32_t>> in, out;
  std::vector<Request> requests;

  /// Makes the calls of `ranks` ranks with blocks of `count` elements; that of rank `odd` has one
  /// more (-1: of none).
  Calls(Collective collective, int ranks, std::size_t count, int odd) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t own = count + (rank == odd ? 1 : 0);
      in.emplace_back(own * static_cast<std::size_t>(ranks), rank);
      out.emplace_back(own * static_cast<std::size_t>(ranks), kUntouched);
    }
    for (std::size_t rank = 0; rank < in.size(); ++rank) {
      requests.push_back({.collective = collective,
                          .type = DataType::kInt32,
                          .count = in[rank].size() / in.size(),
                          .send = in[rank].data(),
                          .recv = out[rank].data()});
    }
  }
  /// Gives each call blocks of its own, so that the operation becomes one whose blocks differ.
  void use_blocks() {
    const std::size_t ranks = in.size();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      Request& request = requests[rank];
      auto blocks = std::make_shared<Blocks>();
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        const auto at = [&](std::vector<std::int32_t>& data) {
          return reinterpret_cast<std::byte*>(data.data() + peer * request.count);
        };
        blocks->sends.push_back({.used = true, .data = at(in[rank]), .count = request.count});
        blocks->receives.push_back({.used = true, .data = at(out[rank]), .count = request.count});
      }
      request.blocks = std::move(blocks);
    }
  }
  void start(Ranks& ranks) {
    for (std::size_t rank = 0; rank < in.size(); ++rank) {
      ASSERT_TRUE(ranks.engines[rank]->start({&requests[rank], 1}).ok());
    }
  }
  bool untouched() const {
    return std::all_of(out.begin(), out.end(), [](const auto& of_rank) {
      return std::all_of(of_rank.begin(), of_rank.end(), [](auto x) { return x == kUntouched; });
    });
  }
};

/// Checks that nothing is written when one rank's call differs, and everything when none does.
void expect_all_or_nothing(Collective collective, const std::string& algorithms, int nranks,
                           std::size_t count, bool blocks, bool odd_only = false) {
  for (int odd = odd_only ? 0 : -1; odd < nranks; odd += odd < 0 ? 1 : nranks - 1) {
    SCOPED_TRACE(algorithms + ", blocks of " + std::to_string(count) + ", other rank " +
                 std::to_string(odd));
    Ranks ranks(nranks, UINT64_MAX, algorithms.c_str());
    Calls calls(collective, nranks, count, odd);
    if (blocks) calls.use_blocks();
    calls.start(ranks);
    const std::vector<Progress> ended = ranks.advance();
    const auto failed = std::count(ended.begin(), ended.end(), Progress::kFailed);
    if (odd >= 0) {
      EXPECT_GT(failed, 0);
      EXPECT_TRUE(calls.untouched());
      continue;
    }
    ASSERT_EQ(std::count(ended.begin(), ended.end(), Progress::kDone), nranks);
    for (std::size_t i = 0; i < calls.out[0].size(); ++i) {
      ASSERT_EQ(calls.out[0][i], static_cast<std::int32_t>(i / count)) << i;
    }
    EXPECT_TRUE(ranks.empty());
  }
}

class AgreementTest : public ::testing::TestWithParam<std::tuple<const char*, Collective>> {};

/// Sizes on both sides of those at which the way changes, and of more than one window.
TEST_P(AgreementTest, NothingIsWrittenBeforeAllAgree) {
  const auto [algorithms, collective] = GetParam();
  for (const std::size_t count : {1UL, 100UL, 1000UL, 5000UL}) {
    expect_all_or_nothing(collective, algorithms, 4, count, /*blocks=*/false);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AgreementTest,
                         ::testing::Values(std::tuple("allgather:direct", Collective::kAllGather),
                                           std::tuple("allgather:ring", Collective::kAllGather),
                                           std::tuple("allgather:doubling", Collective::kAllGather),
                                           std::tuple("allgather:circulant",
                                                      Collective::kAllGather),
                                           std::tuple("alltoall:direct", Collective::kAllToAll),
                                           std::tuple("alltoall:bruck", Collective::kAllToAll),
                                           std::tuple("alltoall:pairwise", Collective::kAllToAll),
                                           std::tuple("gather:direct", Collective::kGather),
                                           std::tuple("gather:binomial", Collective::kGather)));

TEST(AgreementOnBlocks, NothingIsWrittenBeforeAllAgree) {
  for (const std::size_t count : {1UL, 5000UL}) {
    expect_all_or_nothing(Collective::kAllToAll, "", 3, count, /*blocks=*/true);
  }
  expect_all_or_nothing(Collective::kAllToAll, "", 65, 2, /*blocks=*/true);
}

/// Large messages of another call may never be complete, because their sender has failed.
TEST(AgreementOnBlocks, AFingerprintIsEnough) {
  test::QueueEndpoint::incomplete = true;
  expect_all_or_nothing(Collective::kAllToAll, "", 3, 5000, /*blocks=*/true, /*odd_only=*/true);
  expect_all_or_nothing(Collective::kAllToAll, "", 3, 5000, /*blocks=*/false, /*odd_only=*/true);
  test::QueueEndpoint::incomplete = false;
}

} // namespace
} // namespace whorl
