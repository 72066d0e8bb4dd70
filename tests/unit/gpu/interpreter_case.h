#pragma once

// Operations of the interpreter of schedules on pretended ranks, and their right results.

#include <gtest/gtest.h>

#include <cstring>
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
#include "tests/support/device_kernels.h"
#include "tests/unit/gpu/fifo_world.h"

namespace whorl::test {

inline Shape shape_of(int nranks, int root = 0, int channels = 1) {
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
    std::mt19937_64 random(7 + c.count);
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
      AlignedMemory memory(c.shift + in + out + 512);
      for (std::size_t i = 0; i < in; ++i) {
        memory.get()[in_at + i] = static_cast<std::byte>(random());
      }
      inputs.push_back(memory.get() + in_at);
      outputs.push_back(memory.get() + out_at);
      bytes.push_back(c.shift + in + out + 512);
      all.push_back(std::move(memory));
    }
  }
  std::vector<AlignedMemory> all;
  std::vector<std::size_t> bytes;
  std::vector<std::byte*> inputs, outputs;
};

/// Launches one operation of all ranks but `absent` (−1: all).
inline void run(FifoWorld& device, const Case& c, const ChunkMap& map,
                const std::vector<Schedule>& schedules, World& world, int absent = -1) {
  const DeviceLanes lanes = device_lanes(schedules);
  auto launch = std::make_unique<gpu::Launch>();
  const bool reducing = reduces(c.algorithm->collective);
  set_vector(*launch, map, size_of(c.type), !reducing, schedules);
  launch->divisor = c.op == ReduceOp::kAvg ? c.shape.nranks : 1;
  launch->instances = c.instances;
  launch->lanes = lanes.lanes;
  launch->lane_channels = lanes.channels;
  if (c.direct) set_direct(*launch, c.request());
  device.set(*launch);
  std::vector<std::byte> programs;
  std::vector<AlignedMemory> scratch;
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    scratch.emplace_back(launch->scratch_bytes * c.instances + 1);
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
  run_interpreter(kernel, *launch, c.threads, absent);
}

/// Carries out a case and compares all bytes with those of the reference.
inline void check(const Case& c, FifoWorld* device = nullptr) {
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
  FifoWorld own(c.shape.nranks, c.instances * device_lanes(schedules).channels, c.slots,
                c.slot_bytes);
  if (device == nullptr) device = &own;
  run(*device, c, *map, schedules, actual);
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    ASSERT_EQ(std::memcmp(actual.all[rank].get(), expected.all[rank].get(), actual.bytes[rank]), 0)
        << "rank " << rank;
    ASSERT_EQ(device->report(rank).state, 0U);
  }
}

} // namespace whorl::test
