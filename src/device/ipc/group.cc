#include "device/ipc/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "device/common/capture.h"
#include "device/common/context.h"
#include "device/common/late_calls.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"

namespace whorl {

DevicePeers::DevicePeers(const Membership& members, std::span<std::byte> board,
                         FdChannel* fd_channel, const DeviceWatch& watch, const DeviceRules& rules)
    : members_(members),
      board_(board, members.nranks),
      fd_channel_(fd_channel),
      watch_(watch),
      names_(members.names()),
      buffers_(members, board_, fd_channel),
      schedules_(members, rules, board_),
      replays_(board_, members.rank, names_, watch, sync_),
      sync_(board_, members.rank, names_, watch),
      offers_(static_cast<std::size_t>(members.nranks)),
      posts_(static_cast<std::size_t>(members.nranks)) {
  const auto algo = device_algo();
  if (algo.ok()) algo_ = *algo;
  algo_error_ = algo.status();
}

/// Prepares the group once, in the context of the first operation, which is current. Returns
/// whether operations in `context` can use the group.
bool DevicePeers::prepare(CUcontext context) {
  if (prepared_) return context_ == context;
  prepared_ = true;
  CUdevice device = 0;
  CUuuid uuid{};
  if (gpu::driver()->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      gpu::driver()->cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
    return false;
  }
  std::memcpy(device_.data(), &uuid, device_.size());
  together_ = gpu::has_mps(device);
  // Kernels are loaded now, because loading may wait for all streams of the context.
  Status status = gpu::Kernels::of(context).status();
  if (status.ok()) status = sync_.prepare();
  if (!status.ok()) {
    log(LogLevel::kInfo, "processes do not share device memory: " + status.message());
    return false;
  }
  context_ = context;
  if (members_.rank == kDeviceLeader) {
    leader_ = std::make_unique<DeviceLeader>(members_, names_, watch_, board_, sync_, fd_channel_,
                                             context);
  }
  return true;
}

void DevicePeers::describe_call(Operation& operation, CUcontext context) const {
  DevicePost& post = operation.post;
  post.call = fingerprint_of(operation.request, 0, 0);
  post.device = device_;
  post.context = reinterpret_cast<std::uintptr_t>(context);
  post.algo = algo_;
  post.together = together_ ? 1 : 0;
}

/// Describes the buffers of an operation in its post. Returns whether kernels may carry out the
/// operation, as far as this rank knows.
bool DevicePeers::describe_buffers(Operation& operation, CUcontext context) {
  const Request& request = operation.request;
  DevicePost& post = operation.post;
  describe_call(operation, context);
  if (post.captured != 0) describe_capture(operation);
  if (!reaches(context, request, members_.rank, members_.nranks)) return false;
  if (request.collective == Collective::kBarrier) return true;
  if (left_to_host(request)) return false;
  // Kernels that exchange messages touch no buffers of other ranks.
  buffers_.describe_blocks(request, post, operation.places);
  const bool needs_no_leader = schedules_open_ && facts_.layout == DeviceLayout::kOwnDevices;
  post.shared = needs_no_leader || buffers_.describe(request, post) ? 1 : 0;
  // A captured operation is posted in any case, so that all ranks refuse it.
  const bool leader_only =
      devices_known_ && facts_.layout == DeviceLayout::kOneDevice && !facts_.together;
  return !leader_only || post.shared != 0 || post.captured != 0;
}

Status DevicePeers::check(int, const Request& request, Stream* stream) const {
  if (stream != nullptr && stream->device()) WHORL_TRY(algo_error_);
  return check_capture(stream,
                       [&](CUcontext context) { return may_be_captured(request, context); });
}

/// Whether an operation may be captured, as far as this rank knows; otherwise the posts of all
/// ranks decide.
bool DevicePeers::may_be_captured(const Request& request, CUcontext context) const {
  if (algo_ == DeviceAlgo::kHost || !suits_devices(request) || (prepared_ && context != context_) ||
      !reaches(context, request, members_.rank, members_.nranks)) {
    return false;
  }
  return !left_to_host(request) || request.collective == Collective::kBarrier;
}

std::uint64_t DevicePeers::post(int, const Request& request, Stream* stream, std::uint64_t) {
  if (watch_.comm_error->is_set()) { // meet() returns the error
    operations_.clear();
    return ++posted_;
  }
  Operation& operation =
      operations_.emplace_back(Operation{.number = ++posted_, .request = request});
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (device && algo_ != DeviceAlgo::kHost && suits_devices(request)) {
    const auto context = static_cast<CUcontext>(device->context);
    const gpu::ContextGuard guard(context);
    operation.stream = static_cast<CUstream>(device->stream);
    operation.stream_id = stream->id();
    const auto capture = capture_of(operation.stream, context);
    if (capture.ok()) operation.capture = *capture;
    operation.post.captured = operation.capture.id != 0 ? 1 : 0;
    const bool prepared = prepare(context);
    operation.on_device = prepared && describe_buffers(operation, context);
    if (!prepared && operation.post.captured != 0) { // posted, so that all ranks refuse
      describe_call(operation, context);
      operation.post.captured = 2;
      operation.on_device = true;
    }
  }
  return operation.number;
}

void DevicePeers::count() noexcept {
  // No operation waits in operations_ between calls.
  board_.post(members_.rank, ++posted_, nullptr);
}

Progress DevicePeers::advance(std::uint64_t timeout_ns) {
  bool moved = false;
  while (!operations_.empty()) {
    const Progress progress = attempt(operations_.front(), timeout_ns);
    if (progress == Progress::kIdle) return moved ? Progress::kAdvanced : Progress::kIdle;
    moved = true;
    if (progress == Progress::kDone) operations_.pop_front();
  }
  return Progress::kDone;
}

Progress DevicePeers::end(const Operation& operation, bool carried_out, Status error) {
  if (!error.ok()) {
    watch_.fail(error); // also ends the operations that follow
    sync_.cancel();
  }
  outcomes_.push_back(
      {operation.number, carried_out ? Met::kQueued : Met::kHost, std::move(error)});
  return Progress::kDone;
}

/// Advances an operation by one state; kDone if it has come to an outcome.
Progress DevicePeers::attempt(Operation& operation, std::uint64_t timeout_ns) {
  switch (operation.state) {
    case Operation::State::kNew:
      if (!board_.post(members_.rank, operation.number,
                       operation.on_device ? &operation.post : nullptr, operation.places)) {
        return Progress::kIdle;
      }
      if (!operation.on_device) {
        return end(operation, false,
                   refuse_captured(operation, "this process cannot share its device"));
      }
      operation.state = Operation::State::kPosted;
      return Progress::kAdvanced;
    case Operation::State::kPosted:
      return decide(operation, timeout_ns);
    case Operation::State::kOffered:
      return look_at_offers(operation);
    case Operation::State::kMapping:
      return leader_ != nullptr ? lead(operation, timeout_ns) : follow(operation, timeout_ns);
    case Operation::State::kAnswered:
      break;
  }
  return operation.path == DevicePath::kFused ? follow(operation, timeout_ns)
                                              : look_at_answers(operation, timeout_ns);
}

/// Queues an operation whose memory is mapped.
Progress DevicePeers::queue(const Operation& operation, std::uint64_t timeout_ns) {
  const gpu::ContextGuard guard(context_);
  StreamSync::Operation barrier{
      .stream = operation.stream,
      .stream_id = operation.stream_id,
      .timeout_ns = timeout_ns,
      .call = operation.post.call.numbered(static_cast<std::uint32_t>(operation.number))};
  const bool captured = operation.post.captured != 0;
  if (operation.path == DevicePath::kFused) barrier.work = StreamSync::Work::kLeader;
  if (operation.path == DevicePath::kFused && leader_ != nullptr) {
    return end(
        operation, true,
        captured ? leader_->capture(operation.request, posts_, barrier, operation.capture, replays_)
                 : leader_->queue(operation.request, posts_, barrier));
  }
  if (operation.path == DevicePath::kSchedule) {
    const auto planned = schedules_.prepare(operation.request, is_uneven());
    if (!planned.ok()) return end(operation, false, planned.status());
    if (!*planned) return leave_to_host(operation, "the host has to do it");
    if (captured) {
      return end(operation, true,
                 schedules_.capture(operation.request, sync_, barrier, operation.capture));
    }
    return end(operation, true, schedules_.queue(operation.request, sync_, barrier));
  }
  const auto nothing = [] { return Status(); };
  if (captured) {
    return end(operation, true, replays_.capture(barrier, operation.capture, nothing));
  }
  return end(operation, true, sync_.pass(barrier, nothing));
}

/// Whether another rank has come as far in an operation as this rank.
bool DevicePeers::has_come(const Operation& operation, int rank) const {
  DevicePost post;
  DeviceOffer offer;
  switch (operation.state) {
    case Operation::State::kOffered:
      return board_.offer_of(rank, offer) != SharedState::Answer::kNone;
    case Operation::State::kMapping:
      if (leader_ != nullptr) return !leader_->waits_for(rank);
      [[fallthrough]];
    case Operation::State::kAnswered:
      if (operation.path == DevicePath::kFused && rank != kDeviceLeader &&
          !board_.asked(rank, operation.number).any()) {
        return true;
      }
      return board_.answer(rank, operation.number) != SharedState::Answer::kNone;
    case Operation::State::kNew:
    case Operation::State::kPosted:
      break;
  }
  return board_.call(rank, operation.number, &post) != SharedState::Call::kNone;
}

/// Returns the outcome of an operation. Called after advance() has come to the outcome, or by a
/// caller that gives up: then the communicator fails.
Result<Met> DevicePeers::meet(int, std::uint64_t number, const WaitPolicy& policy,
                              const CommError& comm_error, Waiter&) {
  const auto found = std::find_if(outcomes_.begin(), outcomes_.end(),
                                  [&](const Outcome& outcome) { return outcome.number == number; });
  if (found != outcomes_.end()) {
    Outcome outcome = std::move(*found);
    outcomes_.erase(found);
    if (outcome.met == Met::kRefused) {
      refusal_ = std::move(outcome.error);
    } else if (!outcome.error.ok()) {
      return outcome.error;
    }
    return outcome.met;
  }
  if (!comm_error.is_set() && !operations_.empty()) {
    watch_.fail(too_late(operations_.front(), policy.timeout_ns));
  }
  sync_.cancel(); // because the other ranks may still find the post
  buffers_.end_operation();
  if (leader_ != nullptr) leader_->stop();
  return comm_error.status();
}

Status DevicePeers::too_late(const Operation& operation, std::uint64_t timeout_ns) const {
  const auto missing = [&](std::size_t rank) {
    const int other = static_cast<int>(rank);
    return other != members_.rank && !has_come(operation, other);
  };
  return late_error(names_[static_cast<std::size_t>(members_.rank)], operation.request,
                    names_where(names_, missing), timeout_ns, false);
}

} // namespace whorl
