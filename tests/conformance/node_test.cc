// Tests memory and descriptors that the ranks of a host share once the transport of its processes
// has connected.
#include <gtest/gtest.h>

#include <algorithm>

#include "node/board.h"
#include "node/node.h"
#include "tests/conformance/rig.h"
#include "transports/shm/transport.h"

namespace whorl::test {
namespace {

class OneNode : public ::testing::TestWithParam<Mode> {};

TEST_P(OneNode, HasABoardOfZerosAndAChannelToTheLeader) {
  constexpr int kRanks = 3;
  const std::uint64_t job = fresh_job();
  const auto outcomes = run_ranks(kRanks, GetParam(), [&](RankContext& context) {
    const auto node = std::make_shared<Node>();
    EXPECT_TRUE(node->board().empty());
    EXPECT_EQ(node->fd_channel(), nullptr);
    const TransportKind kind{.name = "shm",
                             .make = [&] { return std::make_unique<ShmTransport>(node); }};
    Rig rig(context, kind, job, {.shares_devices = true});
    const Status status = rig.connect();
    ASSERT_TRUE(status.ok()) << status.message();

    const std::span<std::byte> board = node->board();
    ASSERT_GE(board.size(), board_bytes_for(kRanks, false));
    EXPECT_GE(rig.transport().memory().fixed, board.size());
    const auto each = board.size() / kRanks;
    const auto part = [&](int rank) {
      return board.subspan(static_cast<std::size_t>(rank) * each, each);
    };
    const auto own = part(context.rank);
    EXPECT_TRUE(std::all_of(own.begin(), own.end(), [](std::byte b) { return b == std::byte{}; }));
    context.barrier();
    std::fill(own.begin(), own.end(), std::byte{0xff});
    // Messages do not touch the board.
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == context.rank) continue;
      ASSERT_TRUE(rig.send(peer, pattern(64, 1), {}));
      ASSERT_TRUE(matches(rig.receive(peer), 64, 1));
      rig.to(peer).release();
    }
    context.barrier();
    EXPECT_TRUE(std::all_of(board.begin(),
                            board.begin() + static_cast<std::ptrdiff_t>(kRanks * each),
                            [](std::byte b) { return b == std::byte{0xff}; }));

    FdChannel* const channel = node->fd_channel();
    ASSERT_NE(channel, nullptr);
    const bool leads = context.rank == kDeviceLeader;
    EXPECT_EQ(channel->receives(), leads);
    EXPECT_EQ(channel->sends(), !leads);
    const auto body = [](int rank) { return pattern(16, static_cast<std::uint64_t>(rank)); };
    if (!leads) {
      ASSERT_EQ(channel->send(body(context.rank), {}), Progress::kDone);
    }
    context.barrier();
    std::vector<int> senders;
    FdChannel::Message message;
    while (leads && channel->receive(message) == Progress::kDone) {
      for (int rank = 1; rank < kRanks; ++rank) {
        if (std::ranges::equal(message.body(), body(rank))) senders.push_back(rank);
      }
    }
    std::ranges::sort(senders);
    EXPECT_EQ(senders, leads ? (std::vector<int>{1, 2}) : std::vector<int>());

    // The board outlives the transport.
    rig.destroy();
    EXPECT_EQ(own.front(), std::byte{0xff});
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Modes, OneNode, ::testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& mode) {
                           return mode.param == Mode::kThreads ? "threads" : "processes";
                         });

} // namespace
} // namespace whorl::test
