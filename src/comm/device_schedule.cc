#include "comm/device_schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/bytes.h"
#include "base/log.h"
#include "comm/device_program.h"
#include "comm/device_report.h"
#include "gpu/driver.h"
#include "schedule/verify.h"

namespace whorl {
namespace {

using gpu::driver;

/// What messages cost between devices that reach each other's memory, for the cost model that
/// chooses algorithms. A model, not measured: about what two flags over NVLink and two barriers of
/// a block take, and a link of 200 GB/s in each direction.
LinkCosts device_costs(std::size_t message_bytes, std::size_t slots) {
  LinkCosts costs;
  costs.link = {.alpha_us = 3.0,
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

/// Memory of a rank's region. Channels are blocks of a rank that work side by side on parts of the
/// vector: with fewer a link is not full, with more the program's kernels find no room. Slots are
/// as large as a block moves in some microseconds; the flags take about one of them. None of it
/// measured.
constexpr std::uint32_t kChannels = 8, kSlots = 4, kSlotBytes = 64 * 1024;
constexpr std::size_t kRegionBytes = std::size_t{32} << 20, kLeastSlotBytes = 4096;
/// A message smaller than this costs more in flags than in bytes, so that less is not shared out
/// among instances.
constexpr std::size_t kLeastMessage = 8 * 1024;

gpu::FifoLayout layout_for(const Membership& members) {
  const auto least = [&](std::uint32_t RankCard::*what, std::uint32_t otherwise) {
    std::uint32_t value = 0;
    for (const RankCard& card : members.cards) {
      if (card.*what != 0 && (value == 0 || card.*what < value)) value = card.*what;
    }
    return value == 0 ? otherwise : value;
  };
  gpu::FifoLayout layout{.nranks = static_cast<std::uint32_t>(members.nranks),
                         .channels = kChannels,
                         .slots = std::max(least(&RankCard::slots, kSlots), 2U),
                         .slot_bytes = least(&RankCard::slot_bytes, kSlotBytes)};
  const std::size_t fitting =
      kRegionBytes / (std::size_t{layout.nranks} * layout.channels * layout.slots);
  layout.slot_bytes = static_cast<std::uint32_t>(
      std::min<std::size_t>(layout.slot_bytes, std::max(fitting, kLeastSlotBytes)));
  layout.slot_bytes = static_cast<std::uint32_t>(round_up(layout.slot_bytes, std::size_t{128}));
  return layout;
}

std::size_t larger_side(const Request& request, int nranks) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    bytes =
        std::max({bytes, input_bytes(request, rank, nranks), output_bytes(request, rank, nranks)});
  }
  return bytes;
}

Status prove(const Algorithm& algorithm, const Shape& shape, std::span<const Schedule> schedules) {
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place_form(algorithm.collective)) continue;
    const auto report = verify(schedules, {algorithm.collective, shape.root, in_place}, {});
    if (!report.ok()) {
      return report.status().with_context(fmt::format("the schedule {} of {} for {} ranks is wrong",
                                                      algorithm.name, name_of(algorithm.collective),
                                                      shape.nranks));
    }
  }
  return {};
}

Result<bool> is_captured(const DeviceSchedules::Call& call) {
  const gpu::ContextGuard guard(call.context); // the default stream is the context's
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  WHORL_CUDA_TRY(cuStreamIsCapturing(call.stream, &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Kernels of two communicators that each wait for other devices must come in the same order on
/// all of them: a device that has no room for both would begin with one, another device with the
/// other one. So each waits for the one before it, of whichever communicator of this process.
struct Order {
  std::mutex mutex;
  struct Last {
    CUevent event = nullptr;
    const void* of = nullptr;
  };
  std::map<CUcontext, Last> last;
};
Order& order() {
  static Order& instance = *new Order; // never destroyed: streams may outlive main()
  return instance;
}

} // namespace

DeviceSchedules::DeviceSchedules(const Membership& members, DeviceRules rules)
    : name_(members.name), layout_(layout_for(members)), rules_(std::move(rules)) {
  for (int rank = 0; rank < members.nranks; ++rank) names_.push_back(members.describe(rank));
  // Instances share the channels; lanes of a schedule beside each other gain nothing.
  rules_.shape.channels = 1;
}

DeviceSchedules::~DeviceSchedules() {
  Order& all = order();
  const std::lock_guard lock(all.mutex);
  for (auto& [context, last] : all.last) {
    if (last.of == this) last.of = nullptr;
  }
}

/// Says why; not again until there is another reason.
bool DeviceSchedules::refuse(const std::string& why) {
  if (told_ != why && log_enabled(LogLevel::kInfo)) {
    log(LogLevel::kInfo, fmt::format("{}: the host carries out operations between devices: {}",
                                     name_.empty() ? "a communicator" : name_, why));
  }
  told_ = why;
  return false;
}

/// Scratch memory that a rank needs for any schedule with all instances.
std::size_t DeviceSchedules::scratch_bytes(const gpu::FifoLayout& layout) const {
  std::size_t most = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv ||
        !algorithm.supports(rules_.shape)) {
      continue;
    }
    for (int rank = 0; rank < rules_.shape.nranks; ++rank) {
      const Schedule schedule = algorithm.build(rules_.shape, rank);
      most = std::max(most, schedule.scratch.size() *
                                (layout.slot_bytes / schedule.message_chunks + std::size_t{128}));
    }
  }
  return round_up(most, std::size_t{128}) * layout.channels;
}

/// Has regions_ for the contexts of the calls.
Result<bool> DeviceSchedules::prepare(std::span<const Call> calls, bool capturing) {
  std::vector<CUcontext> contexts;
  for (const Call& call : calls) contexts.push_back(call.context);
  if (regions_ == nullptr) {
    if (capturing) return refuse("the first one of a communicator allocates, which no graph can");
    const auto selector = Selector::make(
        rules_.shape,
        device_costs(std::size_t{layout_.slot_bytes} * layout_.channels, layout_.slots),
        rules_.algorithms);
    if (!selector.ok()) return selector.status();
    selector_ = *selector;
    auto made = DeviceRegions::make(contexts, layout_, scratch_bytes(layout_));
    if (!made.ok()) {
      refused_ = true;
      return refuse(std::string(made.status().message()));
    }
    regions_ = *std::move(made);
  }
  if (regions_->made_for(contexts)) return true;
  return refuse("the ranks have changed their devices");
}

Result<DeviceSchedules::Plan*> DeviceSchedules::plan(const Request& request, std::size_t bytes) {
  const Algorithm& algorithm = selector_.pick(request.collective, bytes);
  const int root = has_root(request.collective) ? request.peer : 0;
  const auto known = plans_.find({&algorithm, root});
  if (known != plans_.end()) return &known->second;
  Shape shape = rules_.shape;
  shape.root = root;
  Plan made;
  made.schedules = build_all(algorithm, shape);
  if (rules_.verify) WHORL_TRY(prove(algorithm, shape, made.schedules));
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
  made.uploaded.resize(regions_->devices().size());
  return &plans_.emplace(std::pair(&algorithm, root), std::move(made)).first->second;
}

/// What the launch of one device has of its own: the ranks there and their programs.
Result<bool> DeviceSchedules::fill(gpu::Launch& launch, Plan& plan, std::span<const Call> calls,
                                   std::size_t device, bool capturing) {
  const DeviceRegions::Device& here = regions_->devices()[device];
  launch.stop = here.stop;
  launch.reports = here.reports;
  launch.n_ranks = 0;
  std::vector<std::byte> programs;
  for (const std::size_t rank : here.ranks) {
    const Request& request = *calls[rank].request;
    launch.ranks[launch.n_ranks++] = {.input = static_cast<const std::byte*>(request.send),
                                      .output = static_cast<std::byte*>(request.recv),
                                      .scratch = regions_->scratch(rank),
                                      .rank = static_cast<std::uint32_t>(rank),
                                      .program = static_cast<std::uint32_t>(programs.size())};
    programs.insert(programs.end(), plan.bytes[rank].begin(), plan.bytes[rank].end());
  }
  launch.programs = nullptr;
  if (programs.size() <= sizeof launch.inline_programs) {
    std::memcpy(launch.inline_programs, programs.data(), programs.size());
    return true;
  }
  if (plan.uploaded[device] == nullptr) {
    if (capturing) {
      return refuse(
          fmt::format("the schedule of {} is too large for the parameters of a kernel, "
                      "and to copy it to the device is nothing for a graph",
                      describe(*calls[0].request)));
    }
    const auto uploaded = regions_->upload(here, programs);
    if (!uploaded.ok()) return uploaded.status();
    plan.uploaded[device] = *uploaded;
  }
  launch.programs = plan.uploaded[device];
  return true;
}

Status DeviceSchedules::queue(const gpu::Launch& launch, const DeviceRegions::Device& device,
                              std::span<const Call> calls, bool capturing) {
  const gpu::ContextGuard guard(device.context);
  const CUstream stream = calls[device.ranks.back()].stream;
  const bool several = regions_->devices().size() > 1;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].context == device.context && calls[rank].stream == stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(stream, calls[rank].ready, 0));
  }
  Order::Last* last = nullptr;
  // What is captured cannot wait for what is not. Otherwise launches of a communicator, which use
  // the same FIFOs, follow each other, in whichever streams they are.
  if (!capturing) WHORL_CUDA_TRY(cuStreamWaitEvent(stream, device.done, 0));
  if (several && !capturing) {
    last = &order().last[device.context];
    if (last->event == nullptr) {
      WHORL_CUDA_TRY(cuEventCreate(&last->event, CU_EVENT_DISABLE_TIMING));
    } else if (last->of != this) {
      WHORL_CUDA_TRY(cuStreamWaitEvent(stream, last->event, 0));
    }
  }
  const Request& request = *calls[0].request;
  WHORL_TRY(device.kernels->launch(launch, reduces(request.collective), request.type, request.op,
                                   stream));
  if (last != nullptr) {
    WHORL_CUDA_TRY(cuEventRecord(last->event, stream));
    last->of = this;
  }
  const CUevent done = capturing ? device.captured : device.done;
  WHORL_CUDA_TRY(cuEventRecord(done, stream));
  for (const std::size_t rank : device.ranks) {
    if (calls[rank].stream == stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(calls[rank].stream, done, 0));
  }
  return {};
}

Result<bool> DeviceSchedules::launch(std::span<const Call> calls) {
  WHORL_TRY(failure());
  if (refused_) return false;
  const Request& request = *calls[0].request;
  const int nranks = static_cast<int>(calls.size());
  const auto captured = is_captured(calls.back());
  if (!captured.ok()) return captured.status();
  const bool capturing = *captured;
  const auto ready = prepare(calls, capturing);
  if (!ready.ok() || !*ready) return ready;
  const std::size_t bytes = larger_side(request, nranks);
  if (bytes == 0) return true; // nothing to do, and nobody to wait for
  const auto found = plan(request, bytes);
  if (!found.ok()) return found.status();
  Plan& plan = **found;

  // As many instances as there are FIFOs for and as fit on the fullest device.
  const DeviceLanes lanes = device_lanes(plan.schedules);
  std::uint32_t blocks = gpu::kMaxBlocksOfRank;
  for (const DeviceRegions::Device& device : regions_->devices()) {
    blocks = std::min(
        blocks, device.kernels->most_blocks() / static_cast<std::uint32_t>(device.ranks.size()));
  }
  const std::uint32_t most = std::min(layout_.channels / lanes.channels, blocks / lanes.lanes);
  if (most == 0) {
    return refuse(
        fmt::format("a device has room for {} blocks of a rank, and {} takes {} on {} "
                    "channels",
                    blocks, describe(request), lanes.lanes, lanes.channels));
  }
  const Schedule& first = plan.schedules[0];
  const std::size_t element = size_of(request.type);
  const std::size_t part = (request.count * element + most * first.chunks_per_block - 1) /
                           (most * first.chunks_per_block);
  const std::size_t message = std::clamp<std::size_t>(
      round_up(part, std::size_t{128}) * first.message_chunks,
      std::min<std::size_t>(kLeastMessage, layout_.slot_bytes), layout_.slot_bytes);
  const auto map = ChunkMap::make(first, request.count, element, message);
  if (!map.ok()) return refuse(std::string(map.status().message()));

  gpu::Launch launch{};
  set_vector(launch, *map, element, !reduces(request.collective), plan.schedules);
  launch.divisor = request.op == ReduceOp::kAvg ? nranks : 1;
  launch.instances = static_cast<std::uint32_t>(std::min<std::size_t>(most, map->windows));
  launch.lanes = lanes.lanes;
  launch.lane_channels = lanes.channels;
  std::size_t steps = 0;
  for (const Schedule& schedule : plan.schedules) {
    for (const Lane& lane : schedule.lanes) steps = std::max(steps, lane.steps.size());
  }
  if (launch.scratch_bytes * launch.instances > regions_->scratch_bytes() ||
      (plan.lanes_wait && steps * map->windows > UINT32_MAX)) {
    return refuse(fmt::format("{} is too large", describe(request)));
  }
  timeout_ns_ = 1;
  for (const Call& call : calls) timeout_ns_ = std::max(timeout_ns_, call.timeout_ns);
  launch.timeout_ns = timeout_ns_;
  launch.operation = report_tag(request);
  launch.fifos = layout_;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    launch.regions[rank] = regions_->region(rank);
  }
  std::vector<gpu::Launch> launches(regions_->devices().size(), launch);
  for (std::size_t d = 0; d < launches.size(); ++d) {
    const auto filled = fill(launches[d], plan, calls, d, capturing);
    if (!filled.ok() || !*filled) return filled;
  }
  const std::lock_guard lock(order().mutex);
  for (std::size_t d = 0; d < launches.size(); ++d) {
    const Status status = queue(launches[d], regions_->devices()[d], calls, capturing);
    if (status.ok()) continue;
    stop(); // the kernels that have been queued would wait for this one
    return status;
  }
  return true;
}

void DeviceSchedules::stop() noexcept {
  if (regions_ != nullptr) regions_->stop();
}

Status DeviceSchedules::failure() const {
  if (regions_ == nullptr) return {};
  std::vector<gpu::Report> reports;
  for (std::size_t rank = 0; rank < names_.size(); ++rank) {
    reports.push_back(regions_->report(rank));
  }
  return error_of(reports, names_, timeout_ns_);
}

} // namespace whorl
