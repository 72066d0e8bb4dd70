#include "device/kernel/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/bytes.h"

namespace whorl {
namespace {

gpu::ProgramBuffer buffer_of(Buffer buffer) {
  return static_cast<gpu::ProgramBuffer>(static_cast<std::uint8_t>(buffer));
}
static_assert(static_cast<int>(Buffer::kScratch) == static_cast<int>(gpu::ProgramBuffer::kScratch));

gpu::ProgramStep program_step(const Schedule& schedule, const Lane& lane, const Step& step) {
  gpu::ProgramStep made;
  if (step.waits()) {
    made.flags = gpu::kWaitsForLane;
    made.rx = step.tx;
    made.chunk = step.rx;
    return made;
  }
  const bool local = step.reduces() && !step.receives();
  made.flags = static_cast<std::uint8_t>(
      (step.reads_src() ? gpu::kReadsSource : 0) | (step.writes_dst() ? gpu::kWritesTarget : 0) |
      (step.reduces() ? gpu::kCombines : 0) | (local ? gpu::kReadsTarget : 0) |
      (step.final() ? gpu::kAllPresent : 0));
  made.src = buffer_of(step.src);
  made.dst = buffer_of(step.dst);
  made.fan_in = static_cast<std::uint8_t>(step.fan_in());
  made.fan_out = static_cast<std::uint8_t>(step.fan_out());
  made.rx = step.rx;
  made.tx = step.tx;
  // If the rank's own data is no operand, the position is behind all others.
  made.own_at = local ? 1 : made.fan_in;
  for (std::uint8_t i = 0; step.reads_src() && !local && i < made.fan_in; ++i) {
    const std::uint32_t peer = lane.peers[static_cast<std::size_t>(step.rx) + i];
    if (peer > static_cast<std::uint32_t>(schedule.rank)) {
      made.own_at = i;
      break;
    }
  }
  made.chunk = step.chunk;
  made.dst_chunk = step.dst_chunk;
  made.stride = step.stride;
  made.count = step.count;
  made.repeat = step.repeat;
  return made;
}

template <class T>
std::size_t append(std::vector<std::byte>& bytes, const std::vector<T>& values) {
  const std::size_t at = round_up(bytes.size(), alignof(T));
  bytes.resize(at + values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size() * sizeof(T));
  return at;
}

} // namespace

Result<std::vector<std::byte>> device_program(const Schedule& schedule) {
  gpu::Program program;
  std::vector<gpu::ProgramLane> lanes;
  std::vector<gpu::ProgramStep> steps;
  std::vector<std::uint8_t> peers;
  for (const Lane& lane : schedule.lanes) {
    lanes.push_back({.channel = lane.channel,
                     .first_step = static_cast<std::uint16_t>(steps.size()),
                     .steps = static_cast<std::uint16_t>(lane.steps.size()),
                     .first_peer = static_cast<std::uint16_t>(peers.size()),
                     .peers = static_cast<std::uint16_t>(lane.peers.size())});
    for (const std::uint32_t peer : lane.peers) peers.push_back(static_cast<std::uint8_t>(peer));
    for (const Step& step : lane.steps) {
      steps.push_back(program_step(schedule, lane, step));
      if (step.waits()) program.lanes_wait = 1;
    }
    if (std::set(lane.peers.begin(), lane.peers.end()).size() < lane.peers.size()) {
      program.peers_repeat = 1;
    }
  }
  program.lanes = static_cast<std::uint16_t>(lanes.size());
  program.input_chunks = schedule.input_chunks;
  program.output_chunks = schedule.output_chunks;
  program.scratch_chunks = static_cast<std::uint16_t>(schedule.scratch.size());
  std::vector<std::byte> bytes(sizeof program);
  const std::size_t lanes_at = append(bytes, lanes), steps_at = append(bytes, steps),
                    scratch_at = append(bytes, schedule.scratch), peers_at = append(bytes, peers);
  bytes.resize(round_up(bytes.size(), std::size_t{8}));
  // A lane has each rank in two places at most.
  if (bytes.size() > UINT16_MAX || schedule.nranks > gpu::kMaxRanks) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("the schedule of rank {} of {} takes {} bytes, too many for a "
                                     "device; choose another algorithm with WHORL_ALGO",
                                     schedule.rank, schedule.nranks, bytes.size()));
  }
  program.lanes_at = static_cast<std::uint16_t>(lanes_at);
  program.steps_at = static_cast<std::uint16_t>(steps_at);
  program.scratch_at = static_cast<std::uint16_t>(scratch_at);
  program.peers_at = static_cast<std::uint16_t>(peers_at);
  program.bytes = static_cast<std::uint16_t>(bytes.size());
  std::memcpy(bytes.data(), &program, sizeof program);
  return bytes;
}

DeviceLanes device_lanes(std::span<const Schedule> schedules) {
  DeviceLanes all;
  for (const Schedule& schedule : schedules) {
    all.lanes = std::max(all.lanes, static_cast<std::uint32_t>(schedule.lanes.size()));
    for (const Lane& lane : schedule.lanes) {
      all.channels = std::max(all.channels, lane.channel + 1U);
    }
  }
  return all;
}

void set_vector(gpu::Launch& launch, const ChunkMap& map, std::size_t bytes_of_element,
                bool in_bytes, std::span<const Schedule> schedules) {
  const std::size_t unit = in_bytes ? bytes_of_element : 1;
  launch.count = map.count * unit;
  launch.chunk = map.chunk * unit;
  launch.window = map.window * unit;
  launch.windows = map.windows;
  launch.chunks_per_block = map.chunks_per_block;
  std::size_t chunks = 0;
  for (const Schedule& schedule : schedules) chunks = std::max(chunks, schedule.scratch.size());
  launch.scratch_bytes = round_up(chunks * map.chunk * bytes_of_element, std::size_t{128});
}

void set_direct(gpu::Launch& launch, const Request& request) {
  const Collective collective = request.collective;
  const std::size_t element = size_of(request.type);
  const std::size_t unit = reduces(collective) ? element : 1; // others move bytes
  launch.count = request.count * element / unit;
  launch.chunk = launch.window = gpu::kLineMessage / unit;
  launch.windows = (launch.count + launch.chunk - 1) / launch.chunk;
  launch.instances = static_cast<std::uint32_t>(launch.windows);
  launch.lanes = launch.lane_channels = launch.chunks_per_block = 1;
  const bool splits = collective == Collective::kReduceScatter ||
                      collective == Collective::kScatter || collective == Collective::kAllToAll;
  const bool gathers = collective == Collective::kAllGather || collective == Collective::kGather ||
                       collective == Collective::kAllToAll;
  const auto root = static_cast<std::int16_t>(has_root(collective) ? request.peer : -1);
  const bool to_root = collective == Collective::kReduce || collective == Collective::kGather;
  launch.form = gpu::LaunchForm::kDirect;
  launch.direct = {.splits = static_cast<std::uint8_t>(splits ? 1 : 0),
                   .gathers = static_cast<std::uint8_t>(gathers ? 1 : 0),
                   .sender = to_root ? std::int16_t{-1} : root,
                   .receiver = to_root ? root : std::int16_t{-1}};
}

} // namespace whorl
