#include "device/kernel/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/common/report.h"
#include "device/kernel/program.h"
#include "engine/prove.h"

namespace whorl {
namespace {

/// Returns the costs of messages between devices that reach each other's memory, for the cost model
/// that chooses algorithms. The costs are not measured: about two flags over NVLink and two
/// barriers of a block, and a link of 200 GB/s in each direction.
LinkCosts device_costs(std::size_t message_bytes, std::size_t slots) {
  LinkCosts costs;
  costs.outermost().link = {.alpha_us = 3.0,
                            .overhead_us = 1.0,
                            .beta_us_per_kib = 0,
                            .send_us_per_kib = 0.005,
                            .receive_us_per_kib = 0.002};
  costs.gamma_us_per_kib = 0.001;
  costs.copy_us_per_kib = 0.001;
  costs.message_bytes = message_bytes;
  costs.slots = slots;
  return costs;
}

/// Sizes of a rank's region. Channels are blocks of a rank that work in parallel on parts of the
/// vector: kLeastChannels where ranks are many, kMostChannels where they are few. Among slots of 32
/// to 256 KiB, 2 or 4 of them, these are the fastest for 4 and 8 ranks of one H100 at 256 MiB: they
/// stay in its L2 cache (docs/results/gpu_h100_2026-11-27.md).
constexpr std::uint32_t kLeastChannels = 16, kMostChannels = 64, kSlots = 2, kSlotBytes = 64 * 1024;
constexpr std::size_t kRegionBytes = std::size_t{32} << 20, kMinSlotBytes = 4096;
/// Bytes below which a message costs more in flags than in data, so that smaller ones are not split
/// among instances.
constexpr std::size_t kMinMessage = 8 * 1024;
/// Largest number of parts of a block, of gpu::kLineMessage bytes each, and largest number of bytes
/// that a rank sends, in a direct exchange. Schedules need fewer bytes but more rounds.
constexpr std::size_t kDirectParts = 64, kDirectBytes = std::size_t{1} << 20;

gpu::FifoLayout layout_for(const Membership& members) {
  const auto least = [&](std::uint32_t PeerInfo::*what, std::uint32_t otherwise) {
    std::uint32_t value = 0;
    for (const PeerInfo& info : members.peers) {
      if (info.*what != 0 && (value == 0 || info.*what < value)) value = info.*what;
    }
    return value == 0 ? otherwise : value;
  };
  gpu::FifoLayout layout{.nranks = static_cast<std::uint32_t>(members.nranks),
                         .channels = 0,
                         .slots = std::bit_ceil(std::max(least(&PeerInfo::slots, kSlots), 2U)),
                         .slot_bytes = least(&PeerInfo::slot_bytes, kSlotBytes)};
  layout.channels = static_cast<std::uint32_t>(std::clamp<std::size_t>(
      std::bit_floor(kRegionBytes /
                     (std::size_t{layout.nranks} * layout.slots * layout.slot_bytes)),
      kLeastChannels, kMostChannels));
  const std::size_t fifos = std::size_t{layout.nranks} * layout.channels;
  const std::size_t max_slots = std::max<std::size_t>(kRegionBytes / (fifos * kMinSlotBytes), 2);
  layout.slots =
      static_cast<std::uint32_t>(std::min<std::size_t>(layout.slots, std::bit_floor(max_slots)));
  const std::size_t fitting = kRegionBytes / (fifos * layout.slots);
  layout.slot_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(layout.slot_bytes, std::max(fitting, kMinSlotBytes)));
  layout.slot_bytes = std::max<std::uint32_t>(layout.slot_bytes / 128 * 128, 128);
  return layout;
}

} // namespace

DevicePlanner::DevicePlanner(const Membership& members, DeviceRules rules)
    : name_(members.name), layout_(layout_for(members)), rules_(std::move(rules)) {
  // Instances use the channels; parallel lanes within a schedule would gain nothing.
  rules_.shape.channels = 1;
  direct_.bytes.resize(static_cast<std::size_t>(rules_.shape.nranks));
}

Status DevicePlanner::prepare() {
  const auto selector = Selector::make(
      rules_.shape, device_costs(std::size_t{layout_.slot_bytes} * layout_.channels, layout_.slots),
      rules_.algorithms);
  if (!selector.ok()) return selector.status();
  selector_ = *selector;
  scratch_bytes_ = max_scratch();
  return {};
}

/// Returns the bytes of scratch memory that suffice for any schedule with all instances.
std::size_t DevicePlanner::max_scratch() const {
  std::size_t most = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv ||
        !algorithm.supports(rules_.shape)) {
      continue;
    }
    for (int rank = 0; rank < rules_.shape.nranks; ++rank) {
      const Schedule schedule = build_schedule(algorithm, rules_.shape, rank);
      most = std::max(most, schedule.scratch.size() *
                                (layout_.slot_bytes / schedule.message_chunks + std::size_t{128}));
    }
  }
  return round_up(most, std::size_t{128}) * layout_.channels;
}

std::uint64_t DevicePlanner::fingerprint() const {
  Hash hash;
  hash.mix(rules_.algorithms);
  for (const std::uint32_t part :
       {layout_.nranks, layout_.channels, layout_.slots, layout_.slot_bytes}) {
    hash.mix(std::uint64_t{part});
  }
  return hash.value();
}

std::size_t DevicePlanner::larger_side(const Request& request) const {
  const int nranks = rules_.shape.nranks;
  std::size_t bytes = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    bytes =
        std::max({bytes, input_bytes(request, rank, nranks), output_bytes(request, rank, nranks)});
  }
  return bytes;
}

bool DevicePlanner::moves(const Request& request) const { return larger_side(request) > 0; }

/// Returns the algorithm for a request. An average of floating-point numbers needs one that
/// combines all inputs at once, because partial sums of unscaled inputs may leave the range of the
/// type.
const Algorithm& DevicePlanner::algorithm_for(const Request& request) const {
  const Algorithm& picked = selector_.pick(request.collective, larger_side(request));
  if (request.op != ReduceOp::kAvg || !reduces(request.collective) || !is_float(request.type) ||
      picked.at_once) {
    return picked;
  }
  const bool all = request.collective == Collective::kAllReduce;
  return *find_algorithm(request.collective, all ? "twoshot" : "direct");
}

/// Returns whether a request is carried out by a direct exchange: a small one, unless WHORL_ALGO
/// chooses among schedules.
bool DevicePlanner::goes_directly(const Request& request, std::uint32_t blocks) const {
  if (!rules_.algorithms.empty()) return false;
  const std::size_t bytes = request.count * size_of(request.type);
  const std::size_t parts = std::min({kDirectParts, std::size_t{layout_.channels},
                                      std::size_t{std::min(blocks, gpu::kMaxBlocksOfRank)}});
  return bytes <= parts * gpu::kLineMessage &&
         bytes * static_cast<std::size_t>(rules_.shape.nranks - 1) <= kDirectBytes;
}

Result<DevicePlan*> DevicePlanner::plan(const Request& request, std::size_t devices,
                                        std::uint32_t blocks) {
  if (goes_directly(request, blocks)) {
    return &direct_;
  }
  const Algorithm& algorithm = algorithm_for(request);
  const int root = has_root(request.collective) ? request.peer : 0;
  const auto known = plans_.find({&algorithm, root});
  if (known != plans_.end()) return &known->second;
  Shape shape = rules_.shape;
  shape.root = root;
  if (!algorithm.supports(shape)) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("{} of {} in device memory does not support {} ranks",
                                     algorithm.name, name_of(request.collective), shape.nranks));
  }
  DevicePlan made;
  made.schedules = build_all(algorithm, shape);
  if (rules_.verify) {
    constexpr VerifyOptions kForms[] = {{}};
    WHORL_TRY(prove(algorithm, shape, made.schedules, kForms, static_cast<int>(layout_.slots)));
  }
  for (const Schedule& schedule : made.schedules) {
    auto program = device_program(schedule);
    if (!program.ok()) return program.status();
    made.bytes.push_back(*std::move(program));
    for (const Lane& lane : schedule.lanes) {
      made.lanes_wait =
          made.lanes_wait || std::any_of(lane.steps.begin(), lane.steps.end(),
                                         [](const Step& step) { return step.waits(); });
    }
  }
  made.uploaded.resize(devices);
  return &plans_.emplace(std::pair(&algorithm, root), std::move(made)).first->second;
}

bool DevicePlanner::set(gpu::Launch& launch, const DevicePlan& plan, const Request& request,
                        std::uint32_t blocks) {
  launch.divisor = request.op == ReduceOp::kAvg ? rules_.shape.nranks : 1;
  launch.operation = report_tag(request);
  launch.fifos = layout_;
  if (&plan == &direct_) {
    set_direct(launch, request);
    return true;
  }
  // There are as many instances as have FIFOs and fit on the fullest device.
  const DeviceLanes lanes = device_lanes(plan.schedules);
  const std::uint32_t room = std::min(blocks, gpu::kMaxBlocksOfRank);
  const std::uint32_t most = std::min(layout_.channels / lanes.channels, room / lanes.lanes);
  if (most == 0) {
    return refuse(
        fmt::format("a device has room for {} blocks of a rank, and {} takes {} on {} channels",
                    room, describe(request), lanes.lanes, lanes.channels));
  }
  const Schedule& first = plan.schedules[0];
  const std::size_t element = size_of(request.type);
  const std::size_t part = (request.count * element + most * first.chunks_per_block - 1) /
                           (most * first.chunks_per_block);
  const std::size_t message = std::clamp<std::size_t>(
      round_up(part, std::size_t{128}) * first.message_chunks,
      std::min<std::size_t>(kMinMessage, layout_.slot_bytes), layout_.slot_bytes);
  const auto map = ChunkMap::make(first, request.count, element, message);
  if (!map.ok()) return refuse(std::string(map.status().message()));

  set_vector(launch, *map, element, !reduces(request.collective), plan.schedules);
  launch.instances = static_cast<std::uint32_t>(std::min<std::size_t>(most, map->windows));
  launch.lanes = lanes.lanes;
  launch.lane_channels = lanes.channels;
  std::size_t steps = 0;
  for (const Schedule& schedule : plan.schedules) {
    for (const Lane& lane : schedule.lanes) steps = std::max(steps, lane.steps.size());
  }
  if (launch.scratch_bytes * launch.instances > scratch_bytes_ ||
      (plan.lanes_wait && steps * map->windows > UINT32_MAX)) {
    return refuse(fmt::format("{} is too large", describe(request)));
  }
  return true;
}

bool DevicePlanner::set_exchange(gpu::Launch& launch, const Request& request,
                                 std::uint32_t blocks) {
  launch.form = gpu::LaunchForm::kExchange;
  launch.divisor = launch.lanes = launch.lane_channels = 1;
  launch.operation = report_tag(request, true);
  launch.fifos = layout_;
  launch.parts = std::min({layout_.channels, blocks, gpu::kMaxBlocksOfRank});
  return launch.parts > 0 || refuse("a device has no room for the blocks of all its ranks");
}

bool DevicePlanner::refuse(const std::string& why) {
  if (notified_ != why && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, fmt::format("{}: the host carries out operations between devices: {}",
                                     name_.empty() ? "a communicator" : name_, why));
  }
  notified_ = why;
  return false;
}

bool set_programs(gpu::Launch& launch, std::span<const std::byte> programs) {
  launch.programs = nullptr;
  if (programs.size() > sizeof launch.inline_programs) return false;
  std::copy(programs.begin(), programs.end(), launch.inline_programs);
  return true;
}

} // namespace whorl
