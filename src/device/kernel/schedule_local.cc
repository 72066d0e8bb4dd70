#include "device/kernel/schedule_local.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/common/capture.h"
#include "device/common/report.h"
#include "device/kernel/blocks.h"
#include "device/kernel/exchange.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

using gpu::driver;

/// Largest number of blocks of a rank that has a device of its own (estimated).
constexpr std::uint32_t kBlocksOfOwnDevice = 32;

/// Order of kernels of this process that wait for other devices. Kernels of two communicators must
/// start in the same order on all devices: otherwise, where there is no room for both, one device
/// would begin with one kernel and another device with the other. So each kernel waits for the
/// kernel before it, of whichever communicator.
struct Order {
  std::mutex mutex;
  struct Last {
    CUevent event = nullptr;
    const void* of = nullptr;
  };
  std::map<std::uint64_t, Last> last; ///< kernels by context id, which is unique
};
Order& order() {
  static Order& instance = *new Order; // never destroyed: streams may outlive main()
  return instance;
}

} // namespace

DeviceSchedules::DeviceSchedules(const Membership& members, const DeviceRules& rules)
    : planner_(members, rules), names_(members.names()) {}

DeviceSchedules::~DeviceSchedules() {
  Order& all = order();
  const std::lock_guard lock(all.mutex);
  for (auto& [context, last] : all.last) {
    if (last.of == this) last.of = nullptr;
  }
}

/// Makes fifos_ at the first call. Returns whether they are for the contexts of the calls.
Result<bool> DeviceSchedules::prepare(std::span<const Call> calls, bool capturing) {
  std::vector<CUcontext> contexts;
  for (const Call& call : calls) contexts.push_back(call.context);
  if (fifos_ == nullptr) {
    if (capturing)
      return planner_.refuse("the first one of a communicator allocates, which no graph can");
    WHORL_TRY(planner_.prepare());
    auto made = DeviceFifos::make(contexts, planner_.layout(), planner_.scratch_bytes());
    if (!made.ok()) {
      refused_ = true;
      return planner_.refuse(std::string(made.status().message()));
    }
    fifos_ = *std::move(made);
  }
  if (fifos_->made_for(contexts)) return true;
  return planner_.refuse("the ranks have changed their devices");
}

/// Plans an operation whose blocks may differ in size, of at most `blocks` blocks of each rank.
Result<bool> DeviceSchedules::plan_exchange(gpu::Launch& launch, DevicePlan& plan,
                                            std::span<const Call> calls, std::uint32_t blocks) {
  const Request& request = *calls[0].request;
  const int n = static_cast<int>(calls.size());
  std::vector<Blocks> all;
  for (int rank = 0; rank < n; ++rank) {
    all.push_back(blocks_of(*calls[static_cast<std::size_t>(rank)].request, rank, n));
  }
  WHORL_TRY(check_counts(request, all));
  if (!planner_.set_exchange(launch, request, blocks)) return false;
  for (const Blocks& mine : all) {
    const auto program = exchange_program(request.type, mine);
    const auto bytes = std::as_bytes(std::span(program));
    plan.bytes.emplace_back(bytes.begin(), bytes.end());
    launch.instances = std::max(launch.instances, exchange_blocks(launch, program));
  }
  return true;
}

/// Sets the fields of the launch on one device: the ranks there and their programs.
Result<bool> DeviceSchedules::fill(gpu::Launch& launch, DevicePlan& plan,
                                   std::span<const Call> calls, std::size_t device,
                                   bool capturing) {
  const DeviceFifos::Device& here = fifos_->devices()[device];
  launch.stop = here.stop;
  launch.reports = here.reports;
  launch.n_ranks = 0;
  std::vector<std::byte> programs;
  for (const std::size_t rank : here.ranks) {
    const Request& request = *calls[rank].request;
    launch.ranks[launch.n_ranks++] = {.input = static_cast<const std::byte*>(request.send),
                                      .output = static_cast<std::byte*>(request.recv),
                                      .scratch = fifos_->scratch(rank),
                                      .rank = static_cast<std::uint32_t>(rank),
                                      .program = static_cast<std::uint32_t>(programs.size())};
    programs.insert(programs.end(), plan.bytes[rank].begin(), plan.bytes[rank].end());
  }
  if (set_programs(launch, programs)) return true;
  if (plan.uploaded.empty()) {
    return planner_.refuse(
        fmt::format("the blocks of {} ranks on one device are too many for the "
                    "parameters of a kernel",
                    here.ranks.size()));
  }
  if (plan.uploaded[device] == nullptr) {
    if (capturing) {
      return planner_.refuse(
          fmt::format("the schedule of {} is too large for the parameters of a kernel, "
                      "and to copy it to the device is nothing for a graph",
                      describe(*calls[0].request)));
    }
    const auto uploaded = fifos_->upload(here, programs);
    if (!uploaded.ok()) return uploaded.status();
    plan.uploaded[device] = *uploaded;
  }
  launch.programs = plan.uploaded[device];
  return true;
}

/// Queues the kernel of one device. Returns false if the device has no room for the blocks after
/// all, because a part of it is reserved for other processes (MPS).
Result<bool> DeviceSchedules::queue(const gpu::Launch& launch, const DeviceFifos::Device& device,
                                    std::span<const Call> calls, std::uint64_t capture) {
  const gpu::ContextGuard guard(device.context);
  const CUstream stream = calls[device.ranks.back()].stream;
  const bool several = fifos_->devices().size() > 1;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].context == device.context && calls[rank].stream == stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(stream, calls[rank].ready, 0));
  }
  Order::Last* last = nullptr;
  WHORL_TRY(device.order->enter(stream, capture));
  if (several && capture == 0) {
    last = &order().last[gpu::id_of(device.context)];
    if (last->event == nullptr) {
      WHORL_CUDA_TRY(cuEventCreate(&last->event, CU_EVENT_DISABLE_TIMING));
    } else if (last->of != this) {
      WHORL_CUDA_TRY(cuStreamWaitEvent(stream, last->event, 0));
    }
  }
  const Request& request = *calls[0].request;
  const auto launched =
      device.kernels->launch(launch, reduces(request.collective), request.type, request.op,
                             gpu::Interpreters::Blocks::kTogether, stream);
  if (!launched.ok() || !*launched) return launched;
  if (last != nullptr) {
    WHORL_CUDA_TRY(cuEventRecord(last->event, stream));
    last->of = this;
  }
  WHORL_TRY(device.order->leave(stream, capture));
  for (const std::size_t rank : device.ranks) {
    if (calls[rank].stream != stream) WHORL_TRY(device.order->follow(calls[rank].stream));
  }
  return true;
}

Result<bool> DeviceSchedules::launch(std::span<const Call> calls) {
  WHORL_TRY(failure());
  if (refused_) return false;
  const Request& request = *calls[0].request;
  const auto capture = capture_of(calls.back().stream, calls.back().context);
  if (!capture.ok()) return capture.status();
  const bool capturing = capture->id != 0;
  const auto ready = prepare(calls, capturing);
  if (!ready.ok() || !*ready) return ready;
  const bool uneven = std::any_of(calls.begin(), calls.end(),
                                  [](const Call& call) { return has_blocks(*call.request); });
  if (!uneven && !planner_.moves(request)) return true; // no rank has to be waited for
  // Ranks that have a device of their own leave most of it to the program's kernels.
  std::uint32_t blocks = fifos_->devices().size() < calls.size() ? UINT32_MAX : kBlocksOfOwnDevice;
  for (const DeviceFifos::Device& device : fifos_->devices()) {
    const std::uint32_t room =
        uneven ? device.kernels->max_exchange_blocks() : device.kernels->max_blocks();
    blocks = std::min(blocks, room / static_cast<std::uint32_t>(device.ranks.size()));
  }
  gpu::Launch launch{};
  DevicePlan exchange;
  DevicePlan* plan = &exchange;
  if (uneven) {
    const auto planned = plan_exchange(launch, exchange, calls, blocks);
    if (!planned.ok() || !*planned) return planned;
    if (launch.instances == 0) return true;
  } else {
    const auto found = planner_.plan(request, fifos_->devices().size(), blocks);
    if (!found.ok()) return found.status();
    plan = *found;
    if (!planner_.set(launch, *plan, request, blocks)) return false;
  }
  launch.timeout_ns = 1;
  for (const Call& call : calls) launch.timeout_ns = std::max(launch.timeout_ns, call.timeout_ns);
  // A graph may be launched after a failure, while messages of failed operations are in the FIFOs.
  launch.stops_first = capturing ? 1 : 0;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    launch.regions[rank] = fifos_->region(rank);
  }
  std::vector<gpu::Launch> launches(fifos_->devices().size(), launch);
  for (std::size_t d = 0; d < launches.size(); ++d) {
    const auto filled = fill(launches[d], *plan, calls, d, capturing);
    if (!filled.ok() || !*filled) return filled;
  }
  const std::lock_guard lock(order().mutex);
  for (std::size_t d = 0; d < launches.size(); ++d) {
    const auto queued = queue(launches[d], fifos_->devices()[d], calls, capture->id);
    if (queued.ok() && *queued) continue;
    if (queued.ok() && d == 0) {
      refused_ = true;
      return planner_.refuse("the driver has no room for as many blocks as fit on the device");
    }
    stop(); // the kernels that have been queued would wait for this one
    return queued.ok() ? Status::error(Code::kCudaError,
                                       "one of several devices has no room for "
                                       "the blocks of a kernel")
                       : queued.status();
  }
  return true;
}

void DeviceSchedules::stop() noexcept {
  if (fifos_ != nullptr) fifos_->stop();
}

Status DeviceSchedules::failure() const {
  if (fifos_ == nullptr) return {};
  std::vector<gpu::Report> reports;
  for (std::size_t rank = 0; rank < names_.size(); ++rank) {
    reports.push_back(fifos_->report(rank));
  }
  return error_of(reports, names_);
}

} // namespace whorl
