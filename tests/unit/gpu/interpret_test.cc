// Tests of the interpreter of schedules, run without a device in two ways (device_kernels.h),
// against the reference executor on the same schedules and windows, bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "device/kernel/program.h"
#include "engine/request.h"
#include "exec/reference.h"
#include "kernels/reduce.h"
#include "schedule/builder.h"
#include "tests/support/aligned_memory.h"
#include "tests/support/device_kernels.h"

namespace whorl {
namespace {

constexpr std::uint64_t kSeed = 7;
using Bytes = std::vector<std::byte>;
using Memory = testing::AlignedMemory;

Shape shape_of(int nranks, int root = 0, int channels = 1) {
  Shape shape;
  shape.nranks = nranks;
  shape.root = root;
  shape.channels = channels;
  return shape;
}

struct Case {
  const Algorithm* algorithm = nullptr;
  Shape shape;
  std::size_t count = 0;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  std::size_t shift = 0; ///< bytes of all buffers' starts from an aligned address
  std::uint32_t slots = 2, slot_bytes = 256, instances = 1;
  unsigned threads = 1; ///< threads of a block
  bool direct = false;  ///< a direct exchange, which has the bits of the algorithm

  Request request() const {
    Request request;
    request.collective = algorithm->collective;
    request.type = type;
    request.op = op;
    request.peer = shape.root;
    request.count = count;
    return request;
  }
  std::string text() const {
    return std::string(name_of(algorithm->collective)) + " " + std::string(algorithm->name) +
           " n=" + std::to_string(shape.nranks) + " root=" + std::to_string(shape.root) +
           " count=" + std::to_string(count) + " " + std::string(name_of(type)) + " " +
           std::string(name_of(op)) + (in_place ? " in place" : "") +
           " shift=" + std::to_string(shift) + " slots=" + std::to_string(slots) + " of " +
           std::to_string(slot_bytes) + " instances=" + std::to_string(instances) +
           " threads=" + std::to_string(threads) + (direct ? " direct" : "");
  }
};

/// Buffers of all ranks, with random contents.
struct World {
  explicit World(const Case& c) {
    const Request request = c.request();
    std::mt19937_64 random(kSeed + c.count);
    for (int rank = 0; rank < c.shape.nranks; ++rank) {
      const std::size_t in = input_bytes(request, rank, c.shape.nranks);
      const std::size_t out = output_bytes(request, rank, c.shape.nranks);
      const std::size_t own = static_cast<std::size_t>(rank) * c.count * size_of(c.type);
      const bool gathers = request.collective == Collective::kAllGather ||
                           (request.collective == Collective::kGather && rank == c.shape.root);
      const bool scatters = request.collective == Collective::kReduceScatter ||
                            (request.collective == Collective::kScatter && rank == c.shape.root);
      const std::size_t in_at = c.shift + (c.in_place && gathers ? own : 0);
      const std::size_t out_at = c.shift + (!c.in_place ? (in + 127) / 128 * 128
                                            : scatters  ? own
                                                        : 0);
      Memory memory(c.shift + in + out + 512);
      for (std::size_t i = 0; i < in; ++i) {
        memory.get()[in_at + i] = static_cast<std::byte>(random());
      }
      inputs.push_back(memory.get() + in_at);
      outputs.push_back(memory.get() + out_at);
      bytes.push_back(c.shift + in + out + 512);
      all.push_back(std::move(memory));
    }
  }
  std::vector<Memory> all;
  std::vector<std::size_t> bytes;
  std::vector<std::byte*> inputs, outputs;
};

/// Regions and a launch of all ranks on one device, for one or several successive operations.
class Device {
 public:
  Device(int nranks, std::uint32_t channels, std::uint32_t slots, std::uint32_t slot_bytes)
      : layout_{static_cast<std::uint32_t>(nranks), channels, slots, slot_bytes},
        reports_(static_cast<std::size_t>(nranks)) {
    for (int rank = 0; rank < nranks; ++rank) regions_.emplace_back(layout_.region_bytes());
  }

  void run(const Case& c, const ChunkMap& map, const std::vector<Schedule>& schedules, World& world,
           int absent = -1) {
    const DeviceLanes lanes = device_lanes(schedules);
    auto launch = std::make_unique<gpu::Launch>();
    const bool reducing = reduces(c.algorithm->collective);
    set_vector(*launch, map, size_of(c.type), !reducing, schedules);
    launch->divisor = c.op == ReduceOp::kAvg ? c.shape.nranks : 1;
    launch->instances = c.instances;
    launch->lanes = lanes.lanes;
    launch->lane_channels = lanes.channels;
    if (c.direct) set_direct(*launch, c.request());
    launch->timeout_ns = timeout_ns;
    launch->fifos = layout_;
    launch->stop = &stop;
    launch->stops_first = stops_first ? 1 : 0;
    launch->reports = reports_.data();
    Bytes programs;
    std::vector<Memory> scratch;
    for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
      scratch.emplace_back(launch->scratch_bytes * c.instances + 1);
      launch->regions[rank] = regions_[rank].get();
      const auto program = device_program(schedules[rank]);
      ASSERT_TRUE(program.ok()) << program.status().message();
      launch->ranks[launch->n_ranks++] = {world.inputs[rank], world.outputs[rank],
                                          scratch.back().get(), static_cast<std::uint32_t>(rank),
                                          static_cast<std::uint32_t>(programs.size())};
      programs.insert(programs.end(), program->begin(), program->end());
    }
    launch->programs = programs.data();
    const std::string kernel =
        reducing ? "whorl_interpret_" + std::string(name_of(c.type)) + "_" +
                       std::string(name_of(c.op == ReduceOp::kAvg ? ReduceOp::kSum : c.op))
                 : "whorl_interpret_copy";
    testing::run_interpreter(kernel, *launch, c.threads, absent);
  }

  std::uint64_t timeout_ns = 60'000'000'000;
  gpu::StopWords stop{};
  bool stops_first = false;
  /// Returns the first line of the first message from one rank to another, on the first channel.
  const gpu::Line& line(std::size_t to, std::uint32_t from) const {
    return *reinterpret_cast<const gpu::Line*>(regions_[to].get() + layout_.line_at(from, 0, 0));
  }
  const gpu::Report& report(std::size_t rank) const { return reports_[rank]; }
  /// Returns the number of messages from one rank to another so far, on the first channel.
  std::uint64_t messages(std::uint32_t from, std::size_t to) const {
    const std::byte* const end = regions_[to].get() + layout_.end_at(false, from, 0);
    return reinterpret_cast<const gpu::FifoEnd*>(end)->flag;
  }

 private:
  gpu::FifoLayout layout_;
  std::vector<Memory> regions_;
  std::vector<gpu::Report> reports_;
};

void check(const Case& c, Device* device = nullptr) {
  SCOPED_TRACE(c.text());
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const std::size_t element = size_of(c.type);
  const auto map = ChunkMap::make(schedules[0], c.count, element, c.slot_bytes);
  if (!map.ok()) return; // a slot is too small for a message of so many chunks
  World expected(c), actual(c);
  std::vector<ReferenceBuffers> buffers;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    buffers.push_back({expected.inputs[rank], expected.outputs[rank]});
  }
  // Programs have no scaled inputs: averages that need them are made at once, see DevicePlanner.
  MoveKernels kernels{.element_size = element};
  if (reduces(c.algorithm->collective)) {
    kernels = kernels_of(c.type, c.op, c.shape.nranks, /*at_once=*/true, Simd::kScalar);
  }
  const Status status = run_reference(schedules, *map, kernels, buffers);
  ASSERT_TRUE(status.ok()) << status.message();
  Device own(c.shape.nranks, c.instances * device_lanes(schedules).channels, c.slots, c.slot_bytes);
  if (device == nullptr) device = &own;
  device->run(c, *map, schedules, actual);
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    ASSERT_EQ(std::memcmp(actual.all[rank].get(), expected.all[rank].get(), actual.bytes[rank]), 0)
        << "rank " << rank;
    ASSERT_EQ(device->report(rank).state, 0U);
  }
}

bool runs_on_devices(const Algorithm& algorithm) {
  return algorithm.collective < Collective::kBarrier;
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, EveryAlgorithmGivesTheBitsOfTheReference) {
  for (const Algorithm& algorithm : all_algorithms()) {
    Shape shape = shape_of(GetParam());
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    const std::size_t per_slot = 256 / 4;
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, 3 * per_slot + 5}) {
      shape.root = count == 1 ? 0 : GetParam() - 1;
      for (const bool in_place : {false, true}) {
        if (in_place && !has_in_place_form(algorithm.collective)) continue;
        check({.algorithm = &algorithm,
               .shape = shape,
               .count = count,
               .type = count == 7 ? DataType::kBfloat16 : DataType::kFloat32,
               .in_place = in_place,
               .instances = count == 1 ? 1U : 2U});
      }
    }
  }
}

TEST_P(Ranks, HierarchiesAndSeveralLanesToo) {
  for (const Algorithm& algorithm : all_algorithms()) {
    Shape shape = shape_of(GetParam(), 0, 2);
    if (GetParam() % 2 == 0 && GetParam() > 2) {
      shape.dims = {{.size = 2, .algorithm = {}}, {.size = GetParam() / 2, .algorithm = {}}};
    }
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    check({.algorithm = &algorithm,
           .shape = shape,
           .count = 333,
           .type = DataType::kInt16,
           .threads = GetParam() < 5 ? 3U : 1U});
  }
}
INSTANTIATE_TEST_SUITE_P(Quick, Ranks, ::testing::Range(2, 5));
INSTANTIATE_TEST_SUITE_P(Full, Ranks, ::testing::Range(5, 9));

void run_every_reduction(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const Algorithm* const algorithm = find_algorithm(Collective::kAllReduce, name);
    for (int t = 0; t < kNumDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (const ReduceOp op : kReduceOps) {
        if (!combines(type, op)) continue;
        for (const std::size_t shift : {std::size_t{0}, size_of(type), std::size_t{1}}) {
          check({.algorithm = algorithm,
                 .shape = shape_of(3),
                 .count = 451,
                 .type = type,
                 .op = op,
                 .in_place = shift != 0,
                 .shift = shift});
        }
      }
    }
  }
}

TEST(Interpreter, EveryReduction) { run_every_reduction({"ring"}); }
TEST(InterpreterFull, EveryReduction) { run_every_reduction({"oneshot"}); }

void run_with_threads(unsigned threads) {
  for (const Algorithm& algorithm : all_algorithms()) {
    const Shape shape = shape_of(4, 1);
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    check({.algorithm = &algorithm,
           .shape = shape,
           .count = 300,
           .in_place = has_in_place_form(algorithm.collective),
           .slot_bytes = 512,
           .threads = threads});
  }
}
TEST(Interpreter, ThreadsOfABlockWorkTogether) { run_with_threads(2); }
TEST(InterpreterFull, ThreadsOfABlockWorkTogether) { run_with_threads(5); }

TEST(Interpreter, WideFansAndSlotsOfEverySize) {
  for (const int nranks : {5, 12}) {
    for (const char* const name : {"oneshot", "twoshot"}) {
      const Algorithm* const algorithm = find_algorithm(Collective::kAllReduce, name);
      for (const std::uint32_t slot_bytes : {128U, 512U, 4096U}) {
        for (const std::uint32_t slots : {2U, 4U}) {
          check({.algorithm = algorithm,
                 .shape = shape_of(nranks),
                 .count = 1003,
                 .type = DataType::kFloat16,
                 .slots = slots,
                 .slot_bytes = slot_bytes});
        }
      }
    }
  }
}

// Checks successive launches: the regions keep the counts of messages, and of launches where lanes
// wait for each other; a launch that a graph repeats is one more.
TEST(Interpreter, LaunchesFollowEachOther) {
  constexpr std::uint32_t kChannels = 16;
  Device device(4, kChannels, 4, 256);
  for (int round = 0; round < 3; ++round) {
    for (const Algorithm& algorithm : all_algorithms()) {
      const Shape shape = shape_of(4, round, 2);
      if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
      const std::uint32_t channels = device_lanes(build_all(algorithm, shape)).channels;
      ASSERT_LE(channels, kChannels);
      check({.algorithm = &algorithm,
             .shape = shape,
             .count = 500,
             .slots = 4,
             .instances = kChannels / channels},
            &device);
    }
  }
}

/// Builds a broadcast along a chain, in which a lane sends what another lane has copied or
/// received. No registered algorithm has lanes that wait for each other.
Schedule build_chain(const Shape& shape, int rank) {
  ScheduleBuilder builder(shape.nranks, rank, 1);
  builder.blocks(rank == 0 ? 1 : 0, 1);
  LaneBuilder& own = builder.lane(rank % 2);
  if (rank == 0) {
    own.copy(0, 0);
  } else {
    own.peers(rank - 1, rank - 1).recv_copy(0);
  }
  if (rank + 1 < shape.nranks) {
    LaneBuilder& next = builder.lane((rank + 1) % 2);
    next.peers(rank + 1, rank + 1).read(Buffer::kOutput).wait(0, 0).send(0);
  }
  return std::move(builder).build();
}

TEST(Interpreter, LanesWaitForEachOther) {
  const Algorithm chain{
      .name = "chain", .collective = Collective::kBroadcast, .build_place = build_chain};
  for (const int nranks : {3, 4}) {
    for (const std::uint32_t instances : {1U, 3U}) {
      Device device(nranks, 2 * instances, 2, 256);
      for (int launch = 0; launch < 4; ++launch) {
        check({.algorithm = &chain,
               .shape = shape_of(nranks),
               .count = 500 + static_cast<std::size_t>(launch),
               .instances = instances,
               .threads = 3},
              &device);
      }
    }
  }
}

/// Returns an algorithm that has the bits of a direct exchange: one that combines in the order of
/// the ranks, or only moves.
const Algorithm* like_direct(Collective collective, const Shape& shape) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective || !algorithm.supports(shape)) continue;
    if (!reduces(collective) || algorithm.at_once) return &algorithm;
  }
  return nullptr;
}

void check_direct(int nranks, Case c, Device* device = nullptr) {
  c.direct = true;
  for (int collective = 0; collective < static_cast<int>(Collective::kBarrier); ++collective) {
    c.shape = shape_of(nranks, nranks - 1);
    c.algorithm = like_direct(static_cast<Collective>(collective), c.shape);
    ASSERT_NE(c.algorithm, nullptr) << name_of(static_cast<Collective>(collective));
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      if (!in_place || has_in_place_form(c.algorithm->collective)) check(c, device);
    }
  }
}

class Direct : public ::testing::TestWithParam<int> {};

TEST_P(Direct, GivesTheBitsOfTheReference) {
  for (const std::size_t count : {std::size_t{3}, std::size_t{8}, std::size_t{1030}}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kUint8}) {
      check_direct(GetParam(), {.count = count,
                                .type = type,
                                .shift = count == 8 ? size_of(type) : count % 2,
                                .instances = 2,
                                .threads = count == 3 ? 3U : 1U});
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Quick, Direct, ::testing::Values(3));
INSTANTIATE_TEST_SUITE_P(Full, Direct, ::testing::Values(2, 5, 8));

TEST(Direct, EveryReduction) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp op : kReduceOps) {
      if (!combines(type, op)) continue;
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        check_direct(3, {.count = 83, .type = type, .op = op, .shift = shift});
      }
    }
  }
}

// Checks that exchanges and schedules, which share the counts of messages, follow each other.
TEST(Direct, FollowsItselfAndSchedules) {
  constexpr std::uint32_t kChannels = 16;
  for (const unsigned threads : {1U, 3U}) {
    Device device(4, kChannels, 2, 4096);
    for (int round = 0; round < 3; ++round) {
      check_direct(4, {.count = 700, .slot_bytes = 4096, .instances = 4, .threads = threads},
                   &device);
      for (const char* const name : {"oneshot", "ring"}) {
        check({.algorithm = find_algorithm(Collective::kAllReduce, name),
               .shape = shape_of(4),
               .count = 9000,
               .slot_bytes = 4096,
               .instances = kChannels,
               .threads = threads},
              &device);
      }
    }
  }
}

// Checks a root that only sends: receivers tell it when its lines may be written again.
TEST(Direct, ARootIsToldWhichLinesAreFree) {
  Device device(3, 1, 2, 256);
  for (int round = 0; round < 9; ++round) {
    const Shape shape = shape_of(3, round % 2);
    check({.algorithm = like_direct(Collective::kBroadcast, shape),
           .shape = shape,
           .count = 100 + static_cast<std::size_t>(round),
           .direct = true},
          &device);
  }
}

// Checks a block of many threads, most of which look at the stop words seldom.
TEST(Direct, LeavesSoonWhenItIsStopped) {
  const Case c{.algorithm = like_direct(Collective::kAllReduce, shape_of(2)),
               .shape = shape_of(2),
               .count = 1000,
               .threads = 5,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  for (const bool stops_first : {false, true}) {
    Device device(2, 1, 2, 256);
    World world(c);
    device.stop.set();
    device.stops_first = stops_first;
    device.run(c, *map, schedules, world, 1);
    EXPECT_EQ(device.report(0).state, stops_first ? 0U : 1U);
    EXPECT_EQ(device.report(0).expired, 0U);
    EXPECT_EQ(device.line(1, 0).number, stops_first ? 0U : 1U) << "nothing is written after a stop";
  }
}

// Checks that a root that is ahead of a receiver by two messages waits for it.
TEST(Direct, ARootWaitsForAReceiverThatIsBehind) {
  const Shape shape = shape_of(2);
  const Case c{.algorithm = like_direct(Collective::kBroadcast, shape),
               .shape = shape,
               .count = 100,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  Device device(2, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  for (int message = 0; message < 3; ++message) {
    EXPECT_EQ(device.report(0).state, 0U);
    device.run(c, *map, schedules, world, 1);
  }
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_EQ(device.report(0).peer, 1U);
  EXPECT_EQ(device.report(0).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kSending));
}

TEST(Direct, GivesUpInTimeAndSaysForWhomItWaited) {
  const Case c{.algorithm = like_direct(Collective::kAllGather, shape_of(3)),
               .shape = shape_of(3),
               .count = 1000,
               .threads = 2,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  Device device(3, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  device.run(c, *map, schedules, world, 1);
  EXPECT_TRUE(device.stop.is_set());
  EXPECT_EQ(device.report(2).state, 1U);
  EXPECT_EQ(device.report(2).peer, 1U);
  EXPECT_EQ(device.report(2).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kReceiving));
}

TEST(Interpreter, GivesUpInTimeAndSaysForWhomItWaited) {
  const Case c{.algorithm = find_algorithm(Collective::kAllReduce, "ring"),
               .shape = shape_of(3),
               .count = 1000};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  Device device(3, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  device.run(c, *map, schedules, world, 1);
  EXPECT_TRUE(device.stop.is_set());
  for (const gpu::StopWords::Word& word : device.stop.words) EXPECT_EQ(word.value, 1U);
  EXPECT_EQ(device.report(1).state, 0U);
  EXPECT_EQ(device.report(2).state, 1U);
  EXPECT_EQ(device.report(2).peer, 1U);
  EXPECT_EQ(device.report(2).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kReceiving));
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_TRUE(device.report(0).expired == 1 || device.report(2).expired == 1);
}

TEST(Interpreter, LeavesWhenItIsStopped) {
  const Case c{.algorithm = find_algorithm(Collective::kAllReduce, "twoshot"),
               .shape = shape_of(2),
               .count = 1000};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  Device device(2, 1, 2, 256);
  World world(c);
  device.stop.set();
  device.run(c, *map, schedules, world, 1);
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_EQ(device.report(0).expired, 0U);
}

// Checks a root that has a slot for every message, and so waits for no rank.
TEST(Interpreter, LeavesWhenItIsStoppedAlsoWithoutAWait) {
  constexpr std::uint32_t kMessages = 16'384; // a power of two
  for (const unsigned threads : {1U, 3U}) {
    const Case c{.algorithm = find_algorithm(Collective::kBroadcast, "tree"),
                 .shape = shape_of(2),
                 .count = kMessages,
                 .slots = kMessages,
                 .slot_bytes = 4,
                 .threads = threads};
    const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
    const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
    ASSERT_TRUE(map.ok());
    ASSERT_GT(map->windows, 1000U);
    Device device(2, 1, c.slots, 128);
    World world(c);
    device.stop.set();
    device.run(c, *map, schedules, world, 1);
    EXPECT_LE(device.messages(0, 1), 300U);
    EXPECT_EQ(device.report(0).state, 0U); // rank 0 waits for no rank
  }
}

} // namespace
} // namespace whorl
