// Tests of exchanges between pairs of ranks (gpu/exchange.h), run without a device in two ways
// (device_kernels.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/kernel/exchange.h"
#include "gpu/exchange_messages.h"
#include "tests/support/aligned_memory.h"
#include "tests/support/device_kernels.h"
#include "tests/unit/gpu/interpreter_case.h"

namespace whorl {
namespace {

using test::AlignedMemory;
using test::FifoWorld;

/// Bytes that each rank sends to each, as sizes[from][to].
using Sizes = std::vector<std::vector<std::size_t>>;

/// Makes empty, small and large messages.
Sizes random_sizes(std::size_t nranks, unsigned seed, std::size_t largest) {
  std::mt19937 random(seed);
  Sizes sizes(nranks, std::vector<std::size_t>(nranks));
  for (auto& row : sizes) {
    for (std::size_t& size : row) {
      const unsigned kind = random() % 4;
      size = kind == 0 ? 0 : kind == 1 ? 1 + random() % 20 : random() % largest;
    }
  }
  return sizes;
}

/// Buffers of a rank: a message of random bytes to each rank, and room for those of each, at odd
/// addresses with a gap between any two.
class Buffers {
 public:
  Buffers(const Sizes& sizes, std::size_t rank, unsigned seed)
      : input_(bytes_for(sizes)), output_(bytes_for(sizes)) {
    std::mt19937 random(seed);
    std::size_t in = random() % 17, out = random() % 17;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      blocks.sends.push_back({.used = true, .data = input_.get() + in, .count = sizes[rank][r]});
      blocks.receives.push_back(
          {.used = true, .data = output_.get() + out, .count = sizes[r][rank]});
      for (std::size_t i = 0; i < sizes[rank][r]; ++i) {
        input_.get()[in + i] = static_cast<std::byte>(random());
      }
      in += sizes[rank][r] + 1 + random() % 20;
      out += sizes[r][rank] + 1 + random() % 20;
    }
  }
  /// Returns whether all of the output that no message fills is still zero.
  bool gaps_are_untouched() const {
    const std::byte* at = output_.get();
    for (const Blocks::Block& block : blocks.receives) {
      if (std::any_of(at, static_cast<const std::byte*>(block.data),
                      [](std::byte b) { return b != std::byte{}; })) {
        return false;
      }
      at = block.data + block.count;
    }
    return true;
  }
  Blocks blocks;

 private:
  static std::size_t bytes_for(const Sizes& sizes) {
    std::size_t bytes = 64;
    for (const auto& row : sizes) {
      for (const std::size_t size : row) bytes += size + 64;
    }
    return bytes;
  }
  AlignedMemory input_, output_;
};

/// Launches one exchange of all ranks but `absent` (−1: all).
void run(FifoWorld& device, const std::vector<Buffers>& buffers, std::uint32_t parts,
         unsigned threads, int absent = -1) {
  auto launch = std::make_unique<gpu::Launch>();
  device.set(*launch);
  launch->form = gpu::LaunchForm::kExchange;
  launch->parts = parts;
  launch->lanes = launch->lane_channels = 1;
  std::vector<std::byte> programs;
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    const auto program = exchange_program(DataType::kUint8, buffers[rank].blocks);
    launch->ranks[launch->n_ranks++] = {.input = nullptr,
                                        .output = nullptr,
                                        .scratch = nullptr,
                                        .rank = static_cast<std::uint32_t>(rank),
                                        .program = static_cast<std::uint32_t>(programs.size())};
    const auto bytes = std::as_bytes(std::span(program));
    programs.insert(programs.end(), bytes.begin(), bytes.end());
    launch->instances = std::max(launch->instances, exchange_blocks(*launch, program));
  }
  launch->programs = programs.data();
  if (launch->instances > 0) {
    test::run_interpreter("whorl_exchange", *launch, threads, absent);
  }
}

/// Exchanges messages of such sizes, and checks every byte.
void check(FifoWorld& device, const Sizes& sizes, std::uint32_t parts, unsigned threads,
           unsigned seed) {
  std::vector<Buffers> buffers;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    buffers.emplace_back(sizes, rank, seed + static_cast<unsigned>(rank));
  }
  run(device, buffers, parts, threads);
  for (std::size_t to = 0; to < sizes.size(); ++to) {
    for (std::size_t from = 0; from < sizes.size(); ++from) {
      ASSERT_EQ(std::memcmp(buffers[to].blocks.receives[from].data,
                            buffers[from].blocks.sends[to].data, sizes[from][to]),
                0)
          << from << " to " << to << ", seed " << seed;
    }
    ASSERT_TRUE(buffers[to].gaps_are_untouched()) << to << ", seed " << seed;
    ASSERT_EQ(device.report(to).state, 0U);
  }
}

TEST(Exchange, MovesMessagesOfEverySize) {
  for (const std::size_t n : {1U, 2U, 3U, 5U}) { // also more than parts
    for (const std::uint32_t parts : {1U, 2U, 3U}) {
      FifoWorld device(static_cast<int>(n), parts, 2, 256);
      check(device, random_sizes(n, parts, 3000), parts, n < 4 ? 3 : 1, 7 * parts);
    }
  }
}

// Checks slots that are larger than the smallest chunk, and than the largest.
TEST(Exchange, ChunksFitTheSlotsAndTheMessages) {
  for (const std::uint32_t slot_bytes : {16'384U, 65'536U}) {
    FifoWorld device(3, 2, 2, slot_bytes);
    check(device, random_sizes(3, slot_bytes, 300'000), 2, 2, slot_bytes);
  }
}

// Checks successive launches on the same FIFOs, of which each uses some.
TEST(Exchange, LaunchesFollowEachOther) {
  for (const std::uint32_t slots : {2U, 4U}) {
    FifoWorld device(3, 4, slots, 128);
    for (unsigned seed = 0; seed < 12; ++seed) {
      check(device, random_sizes(3, seed, seed % 3 == 0 ? 90 : 1500), 1 + seed % 4, 1 + seed % 2,
            seed);
    }
  }
}

// Checks messages that are much longer than others, in one direction.
TEST(Exchange, MessagesMayBeVeryDifferent) {
  Sizes sizes(4, std::vector<std::size_t>(4));
  sizes[2][0] = 20'000;
  sizes[0][2] = 1;
  sizes[1][3] = 5'000;
  sizes[3][3] = 999;
  FifoWorld device(4, 2, 2, 256);
  check(device, sizes, 2, 2, 1);
  sizes[2][0] = 0;
  check(device, sizes, 2, 2, 2);
}

// Checks that the counts of messages are those of schedules and of exchanges in lines.
TEST(Exchange, FollowsSchedulesAndLines) {
  FifoWorld device(4, 4, 2, 4096);
  for (unsigned round = 0; round < 4; ++round) {
    check(device, random_sizes(4, round, 30'000), 4, 2, round);
    test::check({.algorithm = find_algorithm(Collective::kAllToAll, "direct"),
                 .shape = test::shape_of(4),
                 .count = 5000,
                 .slot_bytes = 4096,
                 .instances = 4},
                &device);
    test::check({.algorithm = find_algorithm(Collective::kAllGather, "direct"),
                 .shape = test::shape_of(4),
                 .count = 100 + round,
                 .slot_bytes = 4096,
                 .instances = 4,
                 .direct = true},
                &device);
  }
}

TEST(Exchange, GivesUpInTimeAndSaysForWhomItWaited) {
  const Sizes sizes(3, std::vector<std::size_t>(3, 1000));
  std::vector<Buffers> buffers;
  for (std::size_t rank = 0; rank < 3; ++rank) buffers.emplace_back(sizes, rank, 1);
  FifoWorld device(3, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  run(device, buffers, 1, 2, 1);
  EXPECT_TRUE(device.stop.is_set());
  EXPECT_EQ(device.report(1).state, 0U);
  EXPECT_EQ(device.report(2).state, 1U);
  EXPECT_EQ(device.report(2).peer, 1U);
  EXPECT_EQ(device.report(2).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kReceiving));
}

TEST(Exchange, HasNoEffectWhenItIsStopped) {
  const Sizes sizes(2, std::vector<std::size_t>(2, 1000));
  std::vector<Buffers> buffers;
  for (std::size_t rank = 0; rank < 2; ++rank) buffers.emplace_back(sizes, rank, 1);
  FifoWorld device(2, 1, 2, 256);
  device.stop.set();
  device.stops_first = true;
  run(device, buffers, 1, 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(device.report(rank).state, 0U);
    EXPECT_EQ(std::to_integer<int>(buffers[rank].blocks.receives[1 - rank].data[3]), 0);
  }
}

// Checks a rank that has a slot for every message, and so waits for none: others are told by the
// host that all are to stop.
TEST(Exchange, LeavesWhenItIsStoppedAlsoWithoutAWait) {
  constexpr std::uint32_t kSlots = 1024;
  Sizes sizes(2, std::vector<std::size_t>(2));
  sizes[0][1] = std::size_t{kSlots} * 128;
  std::vector<Buffers> buffers;
  for (std::size_t rank = 0; rank < 2; ++rank) buffers.emplace_back(sizes, rank, 1);
  FifoWorld device(2, 1, kSlots, 128);
  device.stop.set();
  run(device, buffers, 1, 1, 1);
  EXPECT_LE(device.messages(0, 1), 300U);
  EXPECT_EQ(device.report(0).state, 0U);
}

TEST(Exchange, TakesNoMoreBlocksThanHaveSomethingToDo) {
  gpu::Launch launch{};
  launch.parts = 16;
  launch.fifos = {.nranks = 4, .channels = 16, .slots = 2, .slot_bytes = 65536};
  const auto blocks_for = [&](std::uint64_t bytes) {
    std::vector<gpu::PairMessages> pairs(4);
    (bytes % 2 == 0 ? pairs[2].taken : pairs[1].sent) = bytes;
    return exchange_blocks(launch, pairs);
  };
  EXPECT_EQ(blocks_for(0), 0U);
  EXPECT_EQ(blocks_for(1), 11U); // messages begin at FIFO 0, 5 and 10
  EXPECT_EQ(blocks_for(20'000), 13U);
  EXPECT_EQ(blocks_for(16 * 65536), 16U);
  launch.parts = 2; // fewer than other ranks
  EXPECT_EQ(blocks_for(1), 2U);
}

} // namespace
} // namespace whorl
