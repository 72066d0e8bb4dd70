#include "device/ipc/schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/wait.h"
#include "device/common/report.h"
#include "device/kernel/blocks.h"
#include "device/kernel/exchange.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

/// Number of communicators for whose kernels a device has room at the same time. Where kernels of
/// two communicators run, each waits for other devices, which may have begun with the other kernel,
/// so both need room.
constexpr std::uint32_t kSideBySide = 4;

} // namespace

DevicePeerSchedules::DevicePeerSchedules(const Membership& members, const DeviceRules& rules,
                                         SharedState board)
    : members_(members),
      board_(board),
      names_(members.names()),
      planner_(members, rules),
      fifos_(static_cast<std::size_t>(members.nranks)) {}

Result<DeviceOffer> DevicePeerSchedules::offer(CUcontext context) {
  if (own_ == nullptr) {
    WHORL_TRY(planner_.prepare());
    // Whole blocks of the driver, so that mapping the region shares no other memory.
    auto made = DeviceFifos::make(std::span(&context, 1), planner_.layout(),
                                  planner_.scratch_bytes(), gpu::kDriverBlock);
    if (!made.ok()) return made.status();
    own_ = *std::move(made);
  }
  const auto region = exports_.find(own_->region(0), planner_.layout().region_bytes());
  if (!region || region->mappings > 0) {
    return Status::error(Code::kInvalidUsage,
                         "the driver has no IPC handle for memory of this device");
  }
  const gpu::Interpreters& kernels = *own_->devices()[0].kernels;
  return DeviceOffer{
      .region = *region,
      .settings = planner_.fingerprint(),
      .blocks = std::min(kernels.max_blocks(), kernels.max_exchange_blocks()) / kSideBySide};
}

Status DevicePeerSchedules::open(std::span<const DeviceOffer> offers,
                                 std::span<const DevicePost> posts) {
  blocks_ = UINT32_MAX;
  imports_.reset(); // mappings of an earlier call that failed
  imports_ = std::make_unique<gpu::MemoryImports>(own_->devices()[0].context);
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (offers[index].settings != planner_.fingerprint()) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} has other settings than {}, of WHORL_ALGO perhaps", names_[index],
                      names_[static_cast<std::size_t>(members_.rank)]));
    }
    const auto sharing = static_cast<std::uint32_t>(
        std::count_if(posts.begin(), posts.end(),
                      [&](const DevicePost& post) { return post.device == posts[index].device; }));
    blocks_ = std::min(blocks_, offers[index].blocks / sharing);
    if (Status status = reach(rank, offers[index], posts[index]); !status.ok()) {
      return status.with_context("the memory of " + names_[index]);
    }
  }
  return {};
}

/// Maps the region of a rank: within the process by peer access, otherwise by IPC, which also gives
/// access.
Status DevicePeerSchedules::reach(int rank, const DeviceOffer& offer, const DevicePost& post) {
  const auto index = static_cast<std::size_t>(rank);
  if (rank == members_.rank) {
    fifos_[index] = own_->region(0);
    return {};
  }
  if (!offer.region.valid(planner_.layout().region_bytes())) {
    return Status::error(Code::kInternalError, "a malformed description of it");
  }
  const DeviceFifos::Device& device = own_->devices()[0];
  if (members_.same_process(rank, members_.rank)) {
    fifos_[index] = reinterpret_cast<std::byte*>(offer.region.address);
    auto* const context = reinterpret_cast<CUcontext>(post.context);
    return context == device.context ? Status() : enable_access(device.context, context);
  }
  bool busy = false;
  const gpu::ContextGuard guard(device.context);
  WHORL_TRY(imports_->open(rank, offer.region, 0, busy));
  fifos_[index] = imports_->use(rank, offer.region, 0);
  return {};
}

/// Prepares an exchange, of the same form on all ranks.
Result<bool> DevicePeerSchedules::prepare_exchange(const Request& request) {
  launch_ = {};
  if (!planner_.set_exchange(launch_, request, blocks_)) return false;
  const auto program =
      exchange_program(request.type, blocks_of(request, members_.rank, members_.nranks));
  launch_.instances = exchange_blocks(launch_, program);
  moves_ = launch_.instances > 0;
  if (set_programs(launch_, std::as_bytes(std::span(program)))) return true;
  return planner_.refuse(fmt::format(
      "the blocks of {} ranks are too many for the parameters of a kernel", members_.nranks));
}

Result<bool> DevicePeerSchedules::prepare(const Request& request, bool uneven) {
  if (uneven) return prepare_exchange(request);
  moves_ = planner_.moves(request);
  if (!moves_) return true;
  const auto found = planner_.plan(request, 1, blocks_);
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

Status DevicePeerSchedules::queue(const Request& request, StreamSync& barriers,
                                  StreamSync::Operation barrier) {
  barrier.work = StreamSync::Work::kEach;
  // The barriers order operations, but not those of graphs.
  LaunchOrder& order = *own_->devices()[0].order;
  if (order.has_graphs()) WHORL_TRY(order.enter(barrier.stream, 0));
  return barriers.pass(barrier, [&] { return launch(request, barriers, barrier, 0); });
}

Status DevicePeerSchedules::capture(const Request& request, const StreamSync& barriers,
                                    const StreamSync::Operation& barrier, const Capture& into) {
  WHORL_TRY(own_->devices()[0].order->enter(barrier.stream, into.id));
  return launch(request, barriers, barrier, into.id);
}

Status DevicePeerSchedules::launch(const Request& request, const StreamSync& barriers,
                                   const StreamSync::Operation& barrier, std::uint64_t capture) {
  if (!moves_) return {};
  const DeviceFifos::Device& device = own_->devices()[0];
  launch_.timeout_ns = barrier.timeout_ns;
  launch_.stop = barriers.stop_words();
  launch_.stops_first = 1;
  launch_.reports = barriers.on_device(&board_.report(0));
  std::copy(fifos_.begin(), fifos_.end(), launch_.regions);
  launch_.n_ranks = 1;
  launch_.ranks[0] = {.input = static_cast<const std::byte*>(request.send),
                      .output = static_cast<std::byte*>(request.recv),
                      .scratch = own_->scratch(0),
                      .rank = static_cast<std::uint32_t>(members_.rank),
                      .program = 0};
  WHORL_TRY(device.kernels
                ->launch(launch_, reduces(request.collective), request.type, request.op,
                         gpu::Interpreters::Blocks::kAsRoomIs, barrier.stream)
                .status());
  return device.order->leave(barrier.stream, capture);
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

/// Reads the reports: a kernel that gives up writes one, and cancels the kernels of all ranks.
Status DevicePeerSchedules::failure() const {
  if (!board_.stop_words().is_set()) return {};
  const auto error = [this] { return error_of(reports(), names_); };
  if (error().ok()) return {}; // cancelled by a host
  // The other kernels soon see the word and report for which rank they wait; a kernel that has not
  // begun reports nothing.
  constexpr WaitPolicy kBriefly{.timeout_ns = 100'000'000, .spins = 0, .yield_ns = 0};
  const auto all_said = [this] {
    const auto all = reports();
    return std::all_of(all.begin(), all.end(),
                       [](const gpu::Report& report) { return report.state != 0; })
               ? Progress::kDone
               : Progress::kIdle;
  };
  const CommError never_set;
  ClockWaiter clock;
  static_cast<void>(wait_until(all_said, kBriefly, never_set, clock));
  return error();
}

} // namespace whorl
