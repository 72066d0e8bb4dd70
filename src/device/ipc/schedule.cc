#include "device/ipc/schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/wait.h"
#include "device/common/report.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

/// Communicators whose kernels a device has room for at the same time. Kernels of two of them wait
/// for other devices, which may have begun with the other one, so both must find room.
constexpr std::uint32_t kSideBySide = 4;

} // namespace

DevicePeerSchedules::DevicePeerSchedules(const Membership& members, const DeviceRules& rules,
                                         DeviceBoard board)
    : members_(members),
      board_(board),
      names_(members.names()),
      planner_(members, rules),
      regions_(static_cast<std::size_t>(members.nranks)) {}

Result<DeviceOffer> DevicePeerSchedules::offer(CUcontext context) {
  if (own_ == nullptr) {
    WHORL_TRY(planner_.prepare());
    // Whole blocks of the driver, so that nothing else is shared with them.
    auto made = DeviceRegions::make(std::span(&context, 1), planner_.layout(),
                                    planner_.scratch_bytes(), gpu::kDriverBlock);
    if (!made.ok()) return made.status();
    own_ = *std::move(made);
  }
  const auto region = exports_.find(own_->region(0), planner_.layout().region_bytes());
  if (!region || region->mappings > 0) {
    return Status::error(Code::kInvalidUsage,
                         "the driver has no IPC handle for memory of this device");
  }
  return DeviceOffer{.region = *region,
                     .settings = planner_.fingerprint(),
                     .blocks = own_->devices()[0].kernels->most_blocks() / kSideBySide};
}

Status DevicePeerSchedules::open(std::span<const DeviceOffer> offers,
                                 std::span<const DevicePost> posts) {
  blocks_ = UINT32_MAX;
  imports_.reset(); // of a call in vain
  imports_ = std::make_unique<gpu::MemoryImports>(own_->devices()[0].context);
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (offers[index].settings != planner_.fingerprint()) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} has other settings than {}, of WHORL_ALGO perhaps", names_[index],
                      names_[static_cast<std::size_t>(members_.rank)]));
    }
    blocks_ = std::min(blocks_, offers[index].blocks);
    if (Status status = reach(rank, offers[index], posts[index]); !status.ok()) {
      return status.with_context("the memory of " + names_[index]);
    }
  }
  return {};
}

/// Within the process by peer access, otherwise by IPC, which gives access as well.
Status DevicePeerSchedules::reach(int rank, const DeviceOffer& offer, const DevicePost& post) {
  const auto index = static_cast<std::size_t>(rank);
  if (rank == members_.rank) {
    regions_[index] = own_->region(0);
    return {};
  }
  if (!offer.region.valid(planner_.layout().region_bytes())) {
    return Status::error(Code::kInternalError, "a malformed description of it");
  }
  const bool here = members_.same_process(rank, members_.rank);
  const DeviceRegions::Device& device = own_->devices()[0];
  if (here) WHORL_TRY(enable_access(device.context, reinterpret_cast<CUcontext>(post.context)));
  bool busy = false;
  const gpu::ContextGuard guard(device.context);
  WHORL_TRY(imports_->open(rank, offer.region, 0, here, busy));
  regions_[index] = imports_->use(rank, offer.region, 0);
  return {};
}

Result<bool> DevicePeerSchedules::prepare(const Request& request) {
  moves_ = planner_.moves(request);
  if (!moves_) return true;
  const auto found = planner_.plan(request, 1);
  if (!found.ok()) return found.status();
  DevicePlan& plan = **found;
  launch_ = {};
  if (!planner_.set(launch_, plan, request, blocks_)) return false;
  const std::vector<std::byte>& program = plan.bytes[static_cast<std::size_t>(members_.rank)];
  if (set_programs(launch_, program)) return true;
  if (plan.uploaded[0] == nullptr) {
    const auto made = own_->upload(own_->devices()[0], program);
    if (!made.ok()) return made.status();
    plan.uploaded[0] = *made;
  }
  launch_.programs = plan.uploaded[0];
  return true;
}

Status DevicePeerSchedules::queue(const Request& request, DeviceGates& gates,
                                  DeviceGates::Operation gate) {
  gate.workers = members_.nranks;
  gate.apart = true;
  // Words put operations in order, but know nothing of graphs.
  LaunchOrder& order = *own_->devices()[0].order;
  if (order.has_graphs()) WHORL_TRY(order.enter(gate.stream, 0));
  return gates.pass(gate, [&] { return launch(request, gates, gate, 0); });
}

Status DevicePeerSchedules::capture(const Request& request, const DeviceGates& gates,
                                    const DeviceGates::Operation& gate, const Capture& into) {
  WHORL_TRY(own_->devices()[0].order->enter(gate.stream, into.id));
  return launch(request, gates, gate, into.id);
}

Status DevicePeerSchedules::launch(const Request& request, const DeviceGates& gates,
                                   const DeviceGates::Operation& gate, std::uint64_t capture) {
  if (!moves_) return {};
  const DeviceRegions::Device& device = own_->devices()[0];
  launch_.timeout_ns = gate.timeout_ns;
  launch_.stop = gates.on_device(reinterpret_cast<std::uint32_t*>(&board_.cancelled()));
  launch_.stops_first = 1;
  launch_.reports = gates.on_device(&board_.report(0));
  std::copy(regions_.begin(), regions_.end(), launch_.regions);
  launch_.n_ranks = 1;
  launch_.ranks[0] = {.input = static_cast<const std::byte*>(request.send),
                      .output = static_cast<std::byte*>(request.recv),
                      .scratch = own_->scratch(0),
                      .rank = static_cast<std::uint32_t>(members_.rank),
                      .program = 0};
  WHORL_TRY(device.kernels
                ->launch(launch_, reduces(request.collective), request.type, request.op,
                         gpu::Interpreters::Blocks::kAsRoomIs, gate.stream)
                .status());
  return device.order->leave(gate.stream, capture);
}

void DevicePeerSchedules::wait() const noexcept {
  if (own_ != nullptr) own_->devices()[0].order->wait();
}

std::vector<gpu::Report> DevicePeerSchedules::reports() const {
  std::vector<gpu::Report> all;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    all.push_back(read_report(board_.report(rank)));
  }
  return all;
}

/// A kernel that gives up says why, and cancels those of all ranks.
Status DevicePeerSchedules::failure() const {
  if (board_.cancelled().load(std::memory_order_seq_cst) == 0) return {};
  const auto error = [this] { return error_of(reports(), names_); };
  if (error().ok()) return {}; // cancelled by a host
  // The others see the word soon, and say then for whom they wait; a kernel that has not begun says
  // nothing.
  constexpr WaitPolicy kBriefly{.timeout_ns = 100'000'000, .spins = 0, .yield_ns = 0};
  const auto all_said = [this] {
    const auto all = reports();
    return std::all_of(all.begin(), all.end(),
                       [](const gpu::Report& report) { return report.state != 0; })
               ? Progress::kDone
               : Progress::kIdle;
  };
  const Verdict nobody;
  ClockNapper clock;
  static_cast<void>(wait_until(all_said, kBriefly, nobody, clock));
  return error();
}

} // namespace whorl
