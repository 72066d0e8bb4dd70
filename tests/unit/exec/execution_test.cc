#include "exec/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "algorithms/algorithm.h"
#include "engine/request.h"
#include "exec/reference.h"
#include "schedule/verify.h"
#include "tests/support/queue_endpoint.h"

namespace whorl {
namespace {

using Bytes = std::vector<std::byte>;

/// Buffers of all ranks for one collective.
struct World {
  std::vector<Bytes> memory; ///< input and output, or both in one buffer in place
  std::vector<Bytes> scratch;
  std::vector<ReferenceBuffers> buffers;
};

Request request_for(Collective collective, std::size_t count, DataType type, int root) {
  return {
      .collective = collective, .type = type, .op = ReduceOp::kSum, .peer = root, .count = count};
}

/// Fills memory with random small whole numbers in float32, different ones for each rank. They are
/// drawn once, because most of the time of a test without optimisation would go into them.
void fill(std::span<std::byte> memory, int rank) {
  constexpr std::size_t kNumbers = 9973; // prime: no multiple of a chunk's size
  static const std::vector<float> numbers = [] {
    std::mt19937 random(42);
    std::vector<float> drawn(kNumbers);
    for (float& value : drawn) value = static_cast<float>(static_cast<int>(random() % 200) - 100);
    return drawn;
  }();
  std::size_t first = static_cast<std::size_t>(rank) * 1013 % kNumbers;
  while (!memory.empty()) {
    const auto part = std::as_bytes(std::span(numbers).subspan(first));
    const std::size_t bytes = std::min(part.size(), memory.size());
    std::memcpy(memory.data(), part.data(), bytes);
    memory = memory.subspan(bytes);
    first = 0;
  }
}

bool same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Makes buffers of random bytes, small whole numbers in float32 and arbitrary integers, so that
/// sums are exact in any order.
World make_world(const Request& request, int nranks, bool in_place) {
  World world;
  for (int rank = 0; rank < nranks; ++rank) {
    const std::size_t in = input_bytes(request, rank, nranks);
    const std::size_t out = output_bytes(request, rank, nranks);
    const std::size_t block = request.count * size_of(request.type);
    std::size_t in_at = 0, out_at = 0, size = std::max(in, out);
    if (!in_place) {
      out_at = in;
      size = in + out;
    } else if (request.collective == Collective::kAllGather) {
      in_at = static_cast<std::size_t>(rank) * block;
    } else if (request.collective == Collective::kReduceScatter) {
      out_at = static_cast<std::size_t>(rank) * block;
    } else if (request.collective == Collective::kGather && rank == request.peer) {
      in_at = static_cast<std::size_t>(rank) * block;
    } else if (request.collective == Collective::kScatter && rank == request.peer) {
      out_at = static_cast<std::size_t>(rank) * block;
    }
    Bytes memory(size + 64);
    fill(std::span(memory).subspan(in_at, in), rank);
    world.memory.push_back(std::move(memory));
    world.buffers.push_back({.input = world.memory.back().data() + in_at,
                             .output = world.memory.back().data() + out_at});
  }
  return world;
}

struct Case {
  Collective collective;
  const Algorithm* algorithm;
  Shape shape;
  std::size_t count;
  DataType type;
  bool in_place;
  bool publishes;
  int slots;
  bool puts = false;
  ReduceOp op = ReduceOp::kSum;
};

/// Runs all ranks in this thread, a little of each in turn, and compares with the reference
/// executor.
void run(const Case& c) {
  SCOPED_TRACE(::testing::Message()
               << name_of(c.collective) << " " << c.algorithm->name << " n=" << c.shape.nranks
               << " root=" << c.shape.root << " count=" << c.count << " " << name_of(c.type)
               << (c.in_place ? " in place" : "") << (c.publishes ? " published" : "")
               << (c.puts ? " put" : "") << " slots=" << c.slots
               << " channels=" << c.shape.channels);
  // Slots are small, so that windows repeat with little data; but messages that are put have a
  // minimum size.
  const std::size_t slot_bytes = c.puts ? kMinSharedBytes + 192 : 2048;
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const Request request = request_for(c.collective, c.count, c.type, c.shape.root);
  const int n = c.shape.nranks;
  const std::size_t element = size_of(c.type);
  const auto map = ChunkMap::make(schedules[0], c.count, element, slot_bytes);
  ASSERT_TRUE(map.ok()) << map.status().message();
  MoveKernels kernels = kernels_of(c.type, c.op, n, c.algorithm->at_once, Simd::kScalar);
  kernels.nontemporal_copy = nontemporal_copy(default_simd());

  World expected = make_world(request, n, c.in_place);
  const Status reference = run_reference(schedules, *map, kernels, expected.buffers);
  ASSERT_TRUE(reference.ok()) << reference.message();

  World actual = make_world(request, n, c.in_place);
  test::QueueFabric fabric(c.slots, slot_bytes, c.publishes, c.puts);
  std::vector<Execution> executions(static_cast<std::size_t>(n));
  std::vector<Bytes> scratch(static_cast<std::size_t>(n));
  for (std::size_t rank = 0; rank < executions.size(); ++rank) {
    Binding binding{.schedule = &schedules[rank],
                    .map = *map,
                    .kernels = kernels,
                    .input = actual.buffers[rank].input,
                    .output = actual.buffers[rank].output,
                    .nontemporal_output = c.count % 2 != 0,
                    .fingerprint = {.sequence = 1}};
    scratch[rank].resize(binding.scratch_bytes() + 1);
    binding.scratch = scratch[rank].data();
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start(binding, view);
  }
  const std::vector<bool> done = test::run_in_turn(executions);
  for (std::size_t rank = 0; rank < executions.size(); ++rank) {
    ASSERT_TRUE(done[rank]) << "rank " << rank << " waits for " << executions[rank].waiting().peer
                            << " " << executions[rank].waiting().phase;
    EXPECT_TRUE(same(actual.memory[rank], expected.memory[rank])) << "rank " << rank;
  }
  EXPECT_TRUE(fabric.empty());
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, MatchReferenceForEveryAlgorithm) {
  const int n = GetParam();
  test::QueueEndpoint::put_messages = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    const Collective collective = algorithm.collective;
    if (collective == Collective::kSend || collective == Collective::kRecv) continue;
    for (const int channels : {1, 2}) {
      Shape shape{.nranks = n, .root = n / 2, .channels = channels};
      if (n == 3) {
        shape.order = {2, 0, 1};
        shape.groups = {2, 1};
      }
      if (n == 4) shape.dims = {{.size = 2, .algorithm = {}}, {.size = 2, .algorithm = {}}};
      if (n == 8) shape.dims = {{.size = 4, .algorithm = {}}, {.size = 2, .algorithm = {}}};
      if (!algorithm.supports(shape)) continue;
      for (const std::size_t count : {0U, 1U, 7U, 1000U, 5003U}) {
        for (const bool in_place : {false, true}) {
          if (in_place && collective == Collective::kAllToAll) continue;
          if (collective == Collective::kBarrier && count > 0) continue;
          for (const bool publishes : {false, true}) {
            run({collective, &algorithm, shape, count, DataType::kFloat32, in_place, publishes, 4});
            if (count > 1000) {
              run({collective, &algorithm, shape, 4 * count, DataType::kFloat32, in_place,
                   publishes, 4, /*puts=*/true});
            }
            if (reduces(collective)) {
              run({collective, &algorithm, shape, count, DataType::kFloat16, in_place, publishes, 4,
                   /*puts=*/count == 5003, ReduceOp::kAvg});
            }
            if (HasFailure()) return;
          }
        }
      }
    }
  }
  // Fewer would mean that buffers are not exposed any more where they were.
  const std::map<int, int> at_least{{1, 0},    {2, 300},  {3, 800}, {4, 1300},
                                    {5, 2200}, {8, 7000}, {9, 7000}};
  EXPECT_GE(test::QueueEndpoint::put_messages, at_least.at(n));
}
INSTANTIATE_TEST_SUITE_P(Quick, Ranks, ::testing::Values(1, 2, 3, 4));
INSTANTIATE_TEST_SUITE_P(Full, Ranks, ::testing::Values(5, 8, 9));

int nontemporal_copies = 0;
void counting_copy(void* to, const void* from, std::size_t bytes) noexcept {
  ++nontemporal_copies;
  std::memcpy(to, from, bytes);
}

/// Checks that what is beyond the caches is written past them, but not while an endpoint compares
/// kinds of stores.
TEST(Execution, PlacedResultsBelongToTrialsOfStores) {
  constexpr std::size_t kSlotBytes = 2 * kMinNontemporalBytes, kCount = 4 * kSlotBytes / 4;
  const Algorithm& direct = *find_algorithm(Collective::kBroadcast, "direct");
  const std::vector<Schedule> schedules = build_all(direct, {.nranks = 2});
  for (const bool trial : {false, true}) {
    test::QueueEndpoint::trial = trial;
    test::QueueEndpoint::put_messages = nontemporal_copies = 0;
    const auto map = ChunkMap::make(schedules[0], kCount, 4, kSlotBytes);
    ASSERT_TRUE(map.ok());
    test::QueueFabric fabric(4, kSlotBytes, false, true);
    std::vector<float> in(kCount, 3.0F), theirs(kCount);
    std::vector<Execution> executions(2);
    for (const std::size_t rank : {1U, 0U}) { // the receiver exposes its buffer first
      auto view = fabric.view(static_cast<int>(rank));
      executions[rank].start(
          {.schedule = &schedules[rank],
           .map = *map,
           .kernels = {.nontemporal_copy = counting_copy, .element_size = 4},
           .input = reinterpret_cast<const std::byte*>(in.data()),
           .output = reinterpret_cast<std::byte*>(rank == 0 ? in.data() : theirs.data()),
           .nontemporal_output = rank == 0,
           .fingerprint = {.sequence = 1}},
          view);
    }
    for (int turn = 0; turn < 100; ++turn) {
      for (Execution& execution : executions) static_cast<void>(execution.advance());
    }
    test::QueueEndpoint::trial = false;
    EXPECT_EQ(theirs, in);
    EXPECT_GT(test::QueueEndpoint::put_messages, 0);
    EXPECT_EQ(nontemporal_copies, trial ? 0 : test::QueueEndpoint::put_messages);
  }
}

TEST(Execution, StreamsNothingWithoutSuchAKernel) {
  constexpr std::size_t kSlotBytes = 2 * kMinNontemporalBytes, kCount = 4 * kSlotBytes / 4;
  const Algorithm& direct = *find_algorithm(Collective::kBroadcast, "direct");
  const std::vector<Schedule> schedules = build_all(direct, {.nranks = 2});
  const auto map = ChunkMap::make(schedules[0], kCount, 4, kSlotBytes);
  ASSERT_TRUE(map.ok());
  for (const bool puts : {false, true}) {
    test::QueueFabric fabric(4, kSlotBytes, false, puts);
    const std::vector<float> in(kCount, 3.0F);
    std::vector<float> outputs[2] = {std::vector<float>(kCount), std::vector<float>(kCount)};
    std::vector<Execution> executions(2);
    for (const std::size_t rank : {1U, 0U}) {
      auto view = fabric.view(static_cast<int>(rank));
      executions[rank].start({.schedule = &schedules[rank],
                              .map = *map,
                              .kernels = {.element_size = 4},
                              .input = reinterpret_cast<const std::byte*>(in.data()),
                              .output = reinterpret_cast<std::byte*>(outputs[rank].data()),
                              .nontemporal_output = true,
                              .fingerprint = {.sequence = 1}},
                             view);
    }
    for (int turn = 0; turn < 100; ++turn) {
      for (Execution& execution : executions) static_cast<void>(execution.advance());
    }
    EXPECT_EQ(outputs[0], in);
    EXPECT_EQ(outputs[1], in);
  }
}

TEST(Execution, OneByteElements) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::kAllReduce) continue;
    Shape shape{.nranks = 6};
    if (!algorithm.supports(shape)) continue;
    for (const std::size_t count : {1U, 63U, 64U, 65U, 12289U}) {
      run({Collective::kAllReduce, &algorithm, shape, count, DataType::kInt8, false, false, 4});
    }
  }
}

/// Checks a lane that lists a rank twice, as groups of partners wider than one can make necessary.
TEST(Execution, PlacesNothingWhereALaneNamesARankTwice) {
  constexpr std::size_t kCount = 2048; // a message
  std::vector<Schedule> schedules(2);
  for (int rank : {0, 1}) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    schedule.rank = rank;
    schedule.nranks = schedule.chunks_per_block = schedule.output_chunks = 2;
  }
  schedules[0].input_chunks = 2;
  schedules[0].lanes = {{.channel = 0,
                         .peers = {1},
                         .steps = {{.ops = kSend, .chunk = 0},
                                   {.ops = kSend, .chunk = 1},
                                   {.ops = kCopy, .stride = 1, .repeat = 2}}}};
  schedules[1].lanes = {{.channel = 0,
                         .peers = {0, 0},
                         .steps = {{.ops = kRecv | kCopy, .rx = 0, .dst_chunk = 0},
                                   {.ops = kRecv | kCopy, .rx = 1, .dst_chunk = 1}}}};
  const auto report = verify(schedules, {.collective = Collective::kBroadcast},
                             {.published = true, .placed = true});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto map = ChunkMap::make(schedules[0], 2 * kCount, 4, 4 * kCount);
  ASSERT_TRUE(map.ok());
  test::QueueFabric fabric(4, 4 * kCount, false, /*puts=*/true);
  std::vector<int> input(2 * kCount), outputs[2] = {input, input};
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<int>(i);
  std::vector<Execution> executions(2);
  for (const std::size_t rank : {1U, 0U}) {
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start({.schedule = &schedules[rank],
                            .map = *map,
                            .kernels = {.element_size = 4},
                            .input = reinterpret_cast<const std::byte*>(input.data()),
                            .output = reinterpret_cast<std::byte*>(outputs[rank].data()),
                            .fingerprint = {.sequence = 1}},
                           view);
    static_cast<void>(executions[rank].advance());
  }
  while (executions[1].advance() == Progress::kAdvanced) {
  }
  EXPECT_EQ(outputs[0], input);
  EXPECT_EQ(outputs[1], input);
}

TEST(Execution, ReportsAMessageOfAnotherOperation) {
  const Algorithm* const ring = find_algorithm(Collective::kAllReduce, "ring");
  const Shape shape{.nranks = 2};
  const std::vector<Schedule> schedules = build_all(*ring, shape);
  const auto map = ChunkMap::make(schedules[0], 16, 4, 2048);
  ASSERT_TRUE(map.ok());
  test::QueueFabric fabric(4, 2048, false);
  std::vector<float> memory(64, 1.0F);
  std::vector<Execution> executions(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start(
        {.schedule = &schedules[rank],
         .map = *map,
         .kernels = {.reduce = reduce_kernel(DataType::kFloat32, ReduceOp::kSum, Simd::kScalar),
                     .element_size = 4},
         .input = reinterpret_cast<const std::byte*>(memory.data() + 16 * rank),
         .output = reinterpret_cast<std::byte*>(memory.data() + 32 + 16 * rank),
         .fingerprint = {.sequence = 1, .types = static_cast<std::uint8_t>(rank)}},
        view);
  }
  static_cast<void>(executions[0].advance());
  EXPECT_EQ(executions[1].advance(), Progress::kFailed);
  EXPECT_EQ(executions[1].mismatch().peer, 0);
  EXPECT_EQ(executions[1].mismatch().theirs.types, 0);
  for (std::size_t i = 48; i < 64; ++i) EXPECT_EQ(memory[i], 1.0F) << "output was touched";
}

/// Returns the number of messages that rank 1 of 2 has sent when it first waits for rank 0's result
/// of window 0.
std::uint64_t sent_before_the_first_result(std::size_t count, int slots) {
  const Algorithm* const twoshot = find_algorithm(Collective::kAllReduce, "twoshot");
  const std::vector<Schedule> schedules = build_all(*twoshot, {.nranks = 2});
  const auto map = ChunkMap::make(schedules[0], count, 4, 2048); // windows of 1024 elements
  test::QueueFabric fabric(slots, 2048, false);
  std::vector<float> memory(4 * count, 1.0F);
  std::vector<Execution> executions(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start(
        {.schedule = &schedules[rank],
         .map = *map,
         .kernels = {.reduce = reduce_kernel(DataType::kFloat32, ReduceOp::kSum, Simd::kScalar),
                     .element_size = 4},
         .input = reinterpret_cast<const std::byte*>(memory.data() + 2 * rank * count),
         .output = reinterpret_cast<std::byte*>(memory.data() + (2 * rank + 1) * count)},
        view);
  }
  EXPECT_EQ(executions[0].advance(), Progress::kAdvanced);
  EXPECT_EQ(executions[1].advance(), Progress::kAdvanced);
  return fabric.view(1).find(0, 0)->sent();
}

TEST(Execution, SendsWhatTheNextWindowBeginsWithWhileItWaits) {
  EXPECT_EQ(sent_before_the_first_result(1024, 4), 2U) << "input and result: there is one window";
  EXPECT_EQ(sent_before_the_first_result(2048, 4), 3U) << "and input of window 1";
  EXPECT_EQ(sent_before_the_first_result(8192, 4), 3U) << "no more than one window ahead";
  EXPECT_EQ(sent_before_the_first_result(2048, 2), 2U) << "no slot is free";
}

TEST(ChunkMap, CoversEveryElementOnce) {
  for (const std::size_t count : {0U, 1U, 2U, 63U, 64U, 65U, 1000U, 4099U}) {
    for (const int chunks : {1, 2, 3, 7, 64}) {
      for (const std::size_t message : {256U, 1024U}) {
        Schedule schedule;
        schedule.chunks_per_block = static_cast<std::uint16_t>(chunks);
        const auto map = ChunkMap::make(schedule, count, 4, message);
        ASSERT_TRUE(map.ok());
        std::vector<int> covered(2 * count);
        for (std::size_t w = 0; w < map->windows; ++w) {
          for (std::uint32_t c = 0; c < 2U * static_cast<unsigned>(chunks); ++c) {
            ASSERT_LE(map->size(w, c) * 4, message);
            for (std::size_t i = 0; i < map->size(w, c); ++i) ++covered[map->begin(w, c) + i];
          }
        }
        for (const int times : covered) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(ChunkMap, RefusesMessagesLargerThanASlot) {
  Schedule schedule;
  schedule.chunks_per_block = schedule.message_chunks = 64;
  const auto map = ChunkMap::make(schedule, 1000, 8, 256);
  ASSERT_FALSE(map.ok());
  EXPECT_NE(map.status().message().find("WHORL_SLOT_BYTES"), std::string::npos);
}

TEST(OneWayMessages, AreFourUnlessThatMakesThemSmall) {
  constexpr std::size_t kKiB = 1024, kSlot = 64 * kKiB;
  EXPECT_EQ(one_way_message_bytes(0, kSlot), 16 * kKiB);
  EXPECT_EQ(one_way_message_bytes(64 * kKiB, kSlot), 16 * kKiB);
  EXPECT_EQ(one_way_message_bytes(128 * kKiB, kSlot), 32 * kKiB);
  EXPECT_EQ(one_way_message_bytes(128 * kKiB + 1, kSlot), 32 * kKiB);
  EXPECT_EQ(one_way_message_bytes(128 * kKiB + 4, kSlot), 32 * kKiB + 64) << "whole lines";
  EXPECT_EQ(one_way_message_bytes(256 * kKiB, kSlot), kSlot);
  EXPECT_EQ(one_way_message_bytes(1024 * kKiB, kSlot), kSlot);
  for (const std::size_t slot : {std::size_t{64}, 16 * kKiB}) {
    EXPECT_EQ(one_way_message_bytes(64 * kKiB, slot), slot) << "small slots stay whole";
  }
}

} // namespace
} // namespace whorl
