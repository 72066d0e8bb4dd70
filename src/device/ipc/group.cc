#include "device/ipc/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "device/common/capture.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"

namespace whorl {
namespace {

/// Whether kernels do such a request, or the gates alone.
bool suits(const Request& request) {
  return !request.point_to_point() && !request.scaled && request.blocks == nullptr &&
         request.table == nullptr;
}

} // namespace

DevicePeers::DevicePeers(const Membership& members, std::span<std::byte> board, FdMailbox* mailbox,
                         const DeviceWatch& watch, const DeviceRules& rules)
    : members_(members),
      board_(board, members.nranks),
      mailbox_(mailbox),
      watch_(watch),
      names_(members.names()),
      schedules_(members, rules, board_),
      replays_(board_, members.rank, names_, watch, gates_),
      gates_(board_, members.rank, names_, watch),
      offers_(static_cast<std::size_t>(members.nranks)),
      posts_(static_cast<std::size_t>(members.nranks)) {
  const auto way = device_way();
  if (way.ok()) way_ = *way;
  way_error_ = way.status();
}

/// What is needed once, in the context of the first operation; it is current.
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
  // Now, since that may wait for all streams of the context.
  Status status = gpu::Kernels::of(context).status();
  if (status.ok()) status = gates_.prepare();
  if (!status.ok()) {
    log(LogLevel::kInfo, "processes do not share device memory: " + status.message());
    return false;
  }
  context_ = context;
  slices_ = std::make_unique<DeviceSlices>(members_, names_, watch_, gates_, mailbox_, context);
  return true;
}

void DevicePeers::describe_call(Operation& operation, CUcontext context) const {
  DevicePost& post = operation.post;
  post.call = fingerprint_of(operation.request, 0, 0);
  post.device = device_;
  post.context = reinterpret_cast<std::uintptr_t>(context);
  post.fused_only = way_ == DeviceWay::kFused ? 1 : 0;
}

/// Whether an operation on the device may come of it.
bool DevicePeers::describe_buffers(Operation& operation, CUcontext context) {
  const Request& request = operation.request;
  DevicePost& post = operation.post;
  describe_call(operation, context);
  post.released = replays_.released();
  if (post.captured != 0) describe_capture(operation);
  if (!reaches(context, request, members_.rank, members_.nranks)) return false;
  if (request.collective == Collective::kBarrier) return true;
  if (devices_ == Devices::kApart) return false;
  // Where schedules do it nobody else touches the buffers.
  post.shared = devices_ == Devices::kOpen || slices_->describe(request, post) ? 1 : 0;
  // All that capture it are told.
  return devices_ != Devices::kOne || post.shared != 0 || post.captured != 0;
}

Status DevicePeers::check(int, const Request& request, Stream* stream) const {
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (!device) return {};
  WHORL_TRY(way_error_);
  const auto context = static_cast<CUcontext>(device->context);
  const auto stream_of = static_cast<CUstream>(device->stream);
  const auto capture = capture_of(stream_of, context);
  if (!capture.ok() || capture->id == 0) return capture.status();
  return may_be_captured(request, context) ? Status() : refuse_capture(stream_of, context);
}

/// As far as this rank knows; where it does not, the posts of all tell.
bool DevicePeers::may_be_captured(const Request& request, CUcontext context) const {
  if (!usable_ || way_ == DeviceWay::kHost || !suits(request) ||
      (prepared_ && context != context_) ||
      !reaches(context, request, members_.rank, members_.nranks)) {
    return false;
  }
  return devices_ != Devices::kApart || request.collective == Collective::kBarrier;
}

std::uint64_t DevicePeers::post(int, const Request& request, Stream* stream, std::uint64_t) {
  if (watch_.verdict->raised()) { // meet() tells
    operations_.clear();
    return ++posted_;
  }
  Operation& operation =
      operations_.emplace_back(Operation{.number = ++posted_, .request = request});
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (device && usable_ && way_ != DeviceWay::kHost && suits(request)) {
    const auto context = static_cast<CUcontext>(device->context);
    const gpu::ContextGuard guard(context);
    operation.stream = static_cast<CUstream>(device->stream);
    operation.stream_id = stream;
    const auto capture = capture_of(operation.stream, context);
    if (capture.ok()) operation.capture = *capture;
    operation.post.captured = operation.capture.id != 0 ? 1 : 0;
    const bool prepared = prepare(context);
    operation.on_device = prepared && describe_buffers(operation, context);
    if (!prepared && operation.post.captured != 0) { // all are told, and refuse
      describe_call(operation, context);
      operation.post.captured = 2;
      operation.on_device = true;
    }
  }
  return operation.number;
}

void DevicePeers::count() noexcept {
  // Between calls there is none that waits.
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
    watch_.fail(error); // also ends the operations after it
    gates_.cancel();
  }
  outcomes_.push_back(
      {operation.number, carried_out ? Met::kQueued : Met::kHost, std::move(error)});
  return Progress::kDone;
}

/// kDone: has come to an outcome.
Progress DevicePeers::attempt(Operation& operation, std::uint64_t timeout_ns) {
  switch (operation.state) {
    case Operation::State::kNew:
      // The one before it may have shown that it cannot be, to all ranks.
      if (operation.on_device && !usable_) {
        board_.post(members_.rank, operation.number, nullptr);
        return leave_to_host(operation, "the host has to do it");
      }
      if (!board_.post(members_.rank, operation.number,
                       operation.on_device ? &operation.post : nullptr)) {
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
      return map(operation);
    case Operation::State::kAnswered:
      break;
  }
  return look_at_answers(operation, timeout_ns);
}

Progress DevicePeers::decide(Operation& operation, std::uint64_t timeout_ns) {
  bool all = true, on_host = false;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    if (rank == members_.rank) {
      post = operation.post;
      continue;
    }
    const auto call = board_.call(rank, operation.number, &post);
    all = all && call != DeviceBoard::Call::kNone;
    on_host = on_host || call == DeviceBoard::Call::kHost;
  }
  if (on_host) {
    return end(operation, false, refuse_captured(operation, "a rank has its buffers on the host"));
  }
  if (!all) return Progress::kIdle;
  if (Status status = check_alike(operation); !status.ok()) {
    return end(operation, false, std::move(status));
  }
  // A rank that has failed waits for nobody any more, although its posts are still there; its
  // verdict is on its way.
  if (board_.cancelled().load(std::memory_order_seq_cst) != 0) return Progress::kIdle;
  operation.by = way_of(operation);
  if (slices_ != nullptr) slices_->release(posts_);
  if (const std::string why = why_not_captured(operation); !why.empty()) {
    return leave_to_host(operation, why);
  }
  switch (operation.by) {
    case By::kHost:
      return end(operation, false);
    case By::kSchedules:
      return devices_ == Devices::kOpen ? queue(operation, timeout_ns) : offer(operation);
    case By::kSlices:
      if (slices_->known(posts_)) break;
      slices_->begin_mapping(operation.number, posts_);
      operation.state = Operation::State::kMapping;
      return Progress::kAdvanced;
    case By::kGates:
      break;
  }
  return queue(operation, timeout_ns);
}

/// From the posts of all ranks, and alike on all.
DevicePeers::By DevicePeers::way_of(const Operation& operation) {
  const auto all = [&](auto&& holds) { return std::all_of(posts_.begin(), posts_.end(), holds); };
  if (operation.request.collective == Collective::kBarrier) return By::kGates;
  if (devices_ == Devices::kUnknown) {
    if (on_one_device()) {
      devices_ = Devices::kOne;
    } else if (!on_devices_of_their_own() ||
               !all([](const DevicePost& post) { return post.fused_only == 0; })) {
      devices_ = Devices::kApart;
    }
  }
  switch (devices_) {
    case Devices::kOne:
      return all([](const DevicePost& post) { return post.shared != 0; }) ? By::kSlices : By::kHost;
    case Devices::kApart:
      return By::kHost;
    case Devices::kUnknown: // until schedules_ are open
    case Devices::kOpen:
      break;
  }
  return By::kSchedules;
}

/// Whether it reaches everything.
bool DevicePeers::on_one_device() const {
  for (std::size_t a = 0; a < posts_.size(); ++a) {
    if (posts_[a].device != posts_[0].device) return false;
    for (std::size_t b = 0; b < a; ++b) { // within a process memory is not mapped once more
      if (members_.same_process(static_cast<int>(a), static_cast<int>(b)) &&
          posts_[a].context != posts_[b].context) {
        return false;
      }
    }
  }
  return true;
}

/// Kernels of two processes on one device would take turns, each waiting for the other.
bool DevicePeers::on_devices_of_their_own() const {
  for (std::size_t a = 0; a < posts_.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (posts_[a].device == posts_[b].device) return false;
    }
  }
  return true;
}

Progress DevicePeers::offer(Operation& operation) {
  const gpu::ContextGuard guard(context_);
  const auto mine = schedules_.offer(context_);
  if (!mine.ok()) {
    log(LogLevel::kInfo,
        fmt::format("{}: no kernels exchange messages between devices: {}",
                    names_[static_cast<std::size_t>(members_.rank)], mine.status().message()));
  }
  board_.offer(members_.rank, mine.ok() ? &*mine : nullptr);
  operation.state = Operation::State::kOffered;
  return Progress::kAdvanced;
}

Progress DevicePeers::look_at_offers(Operation& operation) {
  bool good = true;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto answer = board_.offer_of(rank, offers_[static_cast<std::size_t>(rank)]);
    if (answer == DeviceBoard::Answer::kNone) return Progress::kIdle;
    good = good && answer == DeviceBoard::Answer::kYes;
  }
  if (!good) { // all see it
    devices_ = Devices::kApart;
    return end(operation, false);
  }
  const gpu::ContextGuard guard(context_);
  return answer(operation, schedules_.open(offers_, posts_));
}

/// A rank that cannot hand over its memory says no, and nobody waits for it.
Progress DevicePeers::map(Operation& operation) {
  const Progress progress = slices_->hand_over();
  if (progress == Progress::kDone) return answer(operation, slices_->map(posts_));
  if (progress == Progress::kFailed) return answer(operation, slices_->mapping_error());
  for (int rank = 0; rank < members_.nranks; ++rank) {
    if (board_.answer(rank, operation.number) != DeviceBoard::Answer::kNo) continue;
    return answer(operation, Status::error(Code::kRemoteError,
                                           names_[static_cast<std::size_t>(rank)] + " could not"));
  }
  return progress;
}

/// This rank has mapped what is new, or could not.
Progress DevicePeers::answer(Operation& operation, const Status& mapped) {
  if (!mapped.ok()) {
    log(LogLevel::kWarn,
        fmt::format("{}: the host carries out {}, because memory of another process could not be "
                    "mapped: {}",
                    names_[static_cast<std::size_t>(members_.rank)], describe(operation.request),
                    mapped.message()));
  }
  board_.answer(members_.rank, operation.number, mapped.ok());
  operation.state = Operation::State::kAnswered;
  return Progress::kAdvanced;
}

Progress DevicePeers::look_at_answers(Operation& operation, std::uint64_t timeout_ns) {
  bool good = true;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto answer = board_.answer(rank, operation.number);
    if (answer == DeviceBoard::Answer::kNone) return Progress::kIdle;
    good = good && answer == DeviceBoard::Answer::kYes;
  }
  if (!good) {
    refuse(operation);
    return leave_to_host(operation, "memory of another process could not be mapped");
  }
  if (operation.by == By::kSchedules) devices_ = Devices::kOpen;
  return queue(operation, timeout_ns);
}

/// Some rank could not map all of it.
void DevicePeers::refuse(const Operation& operation) {
  if (operation.by == By::kSchedules) { // the next one tries again
    if (++refusals_ == kMostRefusals) devices_ = Devices::kApart;
    return;
  }
  slices_->forget_new();
  if (++refusals_ < kMostRefusals) return;
  usable_ = false;
  log(LogLevel::kWarn,
      fmt::format("{}: processes do not share device memory any more: {} operations had buffers "
                  "that some rank could not map. The host carries out this communicator's "
                  "operations from now on",
                  names_[static_cast<std::size_t>(members_.rank)], refusals_));
}

/// All memory is mapped.
Progress DevicePeers::queue(const Operation& operation, std::uint64_t timeout_ns) {
  const gpu::ContextGuard guard(context_);
  DeviceGates::Operation gate{
      .stream = operation.stream,
      .stream_id = operation.stream_id,
      .workers = 0,
      .timeout_ns = timeout_ns,
      .call = operation.post.call.numbered(static_cast<std::uint32_t>(operation.number))};
  const bool captured = operation.post.captured != 0;
  if (operation.by == By::kSlices && captured) {
    return end(operation, true,
               slices_->capture(operation.request, posts_, gate, operation.capture, replays_));
  }
  if (operation.by == By::kSlices) {
    return end(operation, true, slices_->queue(operation.request, posts_, gate));
  }
  if (operation.by == By::kSchedules) {
    const auto planned = schedules_.prepare(operation.request);
    if (!planned.ok()) return end(operation, false, planned.status());
    if (!*planned) return leave_to_host(operation, "the host has to do it");
    if (captured) {
      return end(operation, true,
                 schedules_.capture(operation.request, gates_, gate, operation.capture));
    }
    return end(operation, true, schedules_.queue(operation.request, gates_, gate));
  }
  const auto nothing = [] { return Status(); };
  if (captured) {
    gate.workers = 1; // who waits for all
    return end(operation, true, replays_.capture(gate, operation.capture, nothing));
  }
  return end(operation, true, gates_.pass(gate, nothing));
}

Status DevicePeers::check_alike(const Operation& operation) const {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    if ((post.captured != 0) != (operation.post.captured != 0)) {
      const bool own = operation.post.captured != 0;
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} captures {} into a graph, {} does not. All ranks must",
                      names_[static_cast<std::size_t>(own ? members_.rank : rank)],
                      describe(operation.request),
                      names_[static_cast<std::size_t>(own ? rank : members_.rank)]));
    }
    const Fingerprint& other = post.call;
    if (other == operation.post.call) continue;
    const auto number = static_cast<std::uint32_t>(operation.number);
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("ranks disagree on an operation: {} calls {}, {} calls {}; they differ in {}. "
                    "All ranks must make the same calls in the same order",
                    names_[static_cast<std::size_t>(members_.rank)],
                    describe(operation.post.call.numbered(number)),
                    names_[static_cast<std::size_t>(rank)], describe(other.numbered(number)),
                    difference(operation.post.call, other)));
  }
  return {};
}

std::string DevicePeers::missing(const Operation& operation) const {
  std::string text;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    if (rank == members_.rank || has_come(operation, rank)) continue;
    text += (text.empty() ? "" : ", ") + names_[static_cast<std::size_t>(rank)];
  }
  return text;
}

/// Whether a rank is as far as this one.
bool DevicePeers::has_come(const Operation& operation, int rank) const {
  DevicePost post;
  DeviceOffer offer;
  switch (operation.state) {
    case Operation::State::kOffered:
      return board_.offer_of(rank, offer) != DeviceBoard::Answer::kNone;
    case Operation::State::kMapping:
      return !slices_->waits_for(rank);
    case Operation::State::kAnswered:
      return board_.answer(rank, operation.number) != DeviceBoard::Answer::kNone;
    case Operation::State::kNew:
    case Operation::State::kPosted:
      break;
  }
  return board_.call(rank, operation.number, &post) != DeviceBoard::Call::kNone;
}

/// The caller has advanced until there is an outcome, or gives up.
Result<Met> DevicePeers::meet(int, std::uint64_t number, const WaitPolicy& policy,
                              const Verdict& verdict, Napper&) {
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
  if (!verdict.raised() && !operations_.empty()) {
    watch_.fail(too_late(operations_.front(), policy.timeout_ns));
  }
  gates_.cancel(); // the others may still find the post
  if (slices_ != nullptr) slices_->stop_mapping();
  return verdict.status();
}

Status DevicePeers::too_late(const Operation& operation, std::uint64_t timeout_ns) const {
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress for {:.1f} s. {} in {}: waiting for {} to make the call. Ranks that "
                  "share a device wait for each other's calls; one thread that acts for several "
                  "ranks must make their calls between whorlGroupStart and whorlGroupEnd",
                  static_cast<double>(timeout_ns) * 1e-9,
                  names_[static_cast<std::size_t>(members_.rank)], describe(operation.request),
                  missing(operation)));
}

} // namespace whorl
