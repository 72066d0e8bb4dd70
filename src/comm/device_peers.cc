#include "comm/device_peers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "comm/device_capture.h"
#include "comm/device_work.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"
#include "gpu/memory_kind.h"

namespace whorl {
namespace {

std::vector<std::string> names_of(const Membership& members) {
  std::vector<std::string> names;
  for (int rank = 0; rank < members.nranks; ++rank) names.push_back(members.describe(rank));
  return names;
}

/// Whether kernels do such a request, or the gates alone.
bool suits(const Request& request) {
  return !request.point_to_point() && !request.scaled && request.blocks == nullptr &&
         request.table == nullptr;
}

int workers_of(const Request& request, int nranks) {
  int workers = 0;
  const auto of = static_cast<std::size_t>(nranks);
  while (workers < nranks && slice_of(request, static_cast<std::size_t>(workers), of).count > 0) {
    ++workers;
  }
  return workers;
}

} // namespace

DevicePeers::DevicePeers(const Membership& members, std::span<std::byte> board,
                         const DeviceWatch& watch)
    : members_(members),
      board_(board, members.nranks),
      watch_(watch),
      names_(names_of(members)),
      gates_(board_, members.rank, names_, watch),
      posts_(static_cast<std::size_t>(members.nranks)),
      requests_(static_cast<std::size_t>(members.nranks)) {}

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
  imports_ = std::make_unique<gpu::MemoryImports>(context);
  return true;
}

/// Whether other processes on the device reach the buffers.
bool DevicePeers::describe_buffers(Operation& operation, CUcontext context) {
  const auto find = [&](const void* buffer, std::size_t bytes, gpu::SharedMemory& memory) {
    if (bytes == 0) return true;
    const gpu::MemoryPlace place = gpu::place_of(buffer);
    if (place.kind != gpu::MemoryKind::kDevice || place.context != context) return false;
    const auto found = exports_.find(buffer, bytes);
    if (found) memory = *found;
    return found.has_value();
  };
  const Request& request = operation.request;
  operation.post.call = fingerprint_of(request, 0, 0);
  operation.post.device = device_;
  operation.post.context = reinterpret_cast<std::uintptr_t>(context);
  return find(request.send, input_bytes(request, members_.rank, members_.nranks),
              operation.post.input) &&
         find(request.recv, output_bytes(request, members_.rank, members_.nranks),
              operation.post.output);
}

Status DevicePeers::check(int, const Request&, Stream* stream) const {
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  return device ? refuse_capture(static_cast<CUstream>(device->stream),
                                 static_cast<CUcontext>(device->context))
                : Status();
}

std::uint64_t DevicePeers::post(int, const Request& request, Stream* stream, std::uint64_t) {
  if (watch_.verdict->raised()) { // meet() tells
    operations_.clear();
    return ++posted_;
  }
  Operation& operation =
      operations_.emplace_back(Operation{.number = ++posted_, .request = request});
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (device && usable_ && suits(request)) {
    const auto context = static_cast<CUcontext>(device->context);
    const gpu::ContextGuard guard(context);
    operation.stream = static_cast<CUstream>(device->stream);
    operation.stream_id = stream;
    operation.on_device = prepare(context) && describe_buffers(operation, context);
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
    gates_.cancel();
    watch_.fail(error); // also ends the operations after it
  }
  outcomes_.push_back({operation.number, carried_out, std::move(error)});
  return Progress::kDone;
}

/// kDone: has come to an outcome.
Progress DevicePeers::attempt(Operation& operation, std::uint64_t timeout_ns) {
  switch (operation.state) {
    case Operation::State::kNew:
      // The one before it may have shown that it cannot be.
      operation.on_device = operation.on_device && usable_;
      if (!board_.post(members_.rank, operation.number,
                       operation.on_device ? &operation.post : nullptr)) {
        return Progress::kIdle;
      }
      if (!operation.on_device) return end(operation, false);
      operation.state = Operation::State::kPosted;
      return Progress::kAdvanced;
    case Operation::State::kPosted:
      return decide(operation, timeout_ns);
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
  if (on_host) return end(operation, false);
  if (!all) return Progress::kIdle;
  if (Status status = check_alike(operation); !status.ok()) {
    return end(operation, false, std::move(status));
  }
  // A rank that has failed waits for nobody any more, although its posts are still there; its
  // verdict is on its way.
  if (board_.cancelled().load(std::memory_order_seq_cst) != 0) return Progress::kIdle;
  if (!together()) return end(operation, false);
  const auto known = [&](int rank, const gpu::SharedMemory& memory) {
    return memory.bytes == 0 || imports_->has(rank, memory);
  };
  bool all_known = true;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts_[static_cast<std::size_t>(rank)];
    all_known = all_known && known(rank, post.input) && known(rank, post.output);
  }
  if (all_known) return end(operation, true, queue(operation, timeout_ns));
  const Status mapped = map_all();
  if (!mapped.ok()) {
    log(LogLevel::kWarn,
        fmt::format("{}: the host carries out {}, because a buffer of another process could not be "
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
    forget_new();
    if (++refusals_ == kMostRefusals) {
      usable_ = false;
      log(LogLevel::kWarn,
          fmt::format(
              "{}: processes do not share device memory any more: {} operations had buffers "
              "that some rank could not map. The host carries out this communicator's "
              "operations from now on",
              names_[static_cast<std::size_t>(members_.rank)], refusals_));
    }
    return end(operation, false);
  }
  return end(operation, true, queue(operation, timeout_ns));
}

Status DevicePeers::check_alike(const Operation& operation) const {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const Fingerprint& other = posts_[static_cast<std::size_t>(rank)].call;
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

/// Whether one device reaches everything; alike on all ranks.
bool DevicePeers::together() const {
  for (std::size_t a = 0; a < posts_.size(); ++a) {
    if (posts_[a].device != posts_[0].device) return false;
    for (std::size_t b = 0; b < a; ++b) { // within a process memory is not mapped once more
      if (members_.cards[a].process_key == members_.cards[b].process_key &&
          posts_[a].context != posts_[b].context) {
        return false;
      }
    }
  }
  return true;
}

/// Maps what is new of the posts: all of it, also after an error, so that what has been mapped
/// before is let go alike on all ranks.
Status DevicePeers::map_all() {
  const gpu::ContextGuard guard(context_);
  Status first;
  new_memory_.clear();
  const std::uint64_t own = members_.cards[static_cast<std::size_t>(members_.rank)].process_key;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const DevicePost& post = posts_[index];
    for (const gpu::SharedMemory* const memory : {&post.input, &post.output}) {
      if (memory->bytes == 0 || imports_->has(rank, *memory)) continue;
      const bool tried = std::any_of(
          new_memory_.begin(), new_memory_.end(),
          [&](const NewMemory& one) { return one.rank == rank && one.memory.id == memory->id; });
      if (tried) continue; // in vain
      new_memory_.push_back({rank, *memory});
      const std::array keep{post.input.id, post.output.id};
      imports_->make_room(rank, *memory, keep);
      const Status opened = open(rank, *memory, members_.cards[index].process_key == own);
      if (first.ok()) first = opened;
    }
  }
  return first;
}

/// Maps memory of a rank, if need be after what is in its way is not used any more.
Status DevicePeers::open(int rank, const gpu::SharedMemory& memory, bool here) {
  bool busy = false;
  close_retired(imports_->in_the_way(rank, &memory));
  Status status = imports_->open(rank, memory, gates_.next(), here, busy);
  if (!busy) return status;
  close_retired(imports_->in_the_way(rank, nullptr));
  return imports_->open(rank, memory, gates_.next(), here, busy);
}

/// Unmaps what is not needed any more, when the streams have passed operation `last`; they may be
/// held up by what the program does after this call.
void DevicePeers::close_retired(std::uint64_t last) {
  constexpr WaitPolicy kBriefly{.timeout_ns = 200'000'000, .spins = 0, .yield_ns = 0};
  ClockNapper clock;
  static_cast<void>(
      wait_until([&] { return gates_.passed() >= last ? Progress::kDone : Progress::kIdle; },
                 kBriefly, *watch_.verdict, clock));
  imports_->close_retired(gates_.passed());
}

/// A rank could not map all of it, so no rank has it. What is mapped is alike on all, and the next
/// operation begins anew: what is in the way may be memory that another rank has freed meanwhile.
void DevicePeers::forget_new() {
  const gpu::ContextGuard guard(context_);
  for (const NewMemory& one : new_memory_) imports_->forget(one.rank, one.memory);
  imports_->forget_all();
  imports_->trim(gates_.passed());
}

/// All buffers are mapped.
Status DevicePeers::queue(const Operation& operation, std::uint64_t timeout_ns) {
  const gpu::ContextGuard guard(context_);
  const std::uint64_t epoch = gates_.next();
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const DevicePost& post = posts_[index];
    Request& request = requests_[index] = operation.request;
    const auto use = [&](const gpu::SharedMemory& memory, std::size_t bytes) -> std::byte* {
      if (bytes == 0 || !memory.valid(bytes)) return nullptr;
      return imports_->use(rank, memory, epoch);
    };
    const std::size_t in = input_bytes(operation.request, rank, members_.nranks);
    const std::size_t out = output_bytes(operation.request, rank, members_.nranks);
    request.send = use(post.input, in);
    request.recv = use(post.output, out);
    if ((in > 0 && request.send == nullptr) || (out > 0 && request.recv == nullptr)) {
      return Status::error(Code::kInternalError,
                           fmt::format("{} sent a malformed description of its buffers in {}",
                                       names_[index], describe(operation.request)));
    }
  }
  const int workers = workers_of(operation.request, members_.nranks);
  const DeviceGates::Operation gate{
      .stream = operation.stream,
      .stream_id = operation.stream_id,
      .workers = workers,
      .timeout_ns = timeout_ns,
      .call = operation.post.call.numbered(static_cast<std::uint32_t>(operation.number))};
  WHORL_TRY(gates_.enter(gate));
  Status status;
  if (members_.rank < workers) {
    status = launch_device_work(
        requests_,
        slice_of(operation.request, static_cast<std::size_t>(members_.rank), requests_.size()),
        gates_.cancelled(), operation.stream);
  }
  if (!status.ok()) {
    gates_.cancel();
    watch_.fail(status); // before the streams of the others pass without this share
  }
  WHORL_TRY(gates_.leave(gate));
  imports_->trim(gates_.passed());
  return status;
}

std::string DevicePeers::missing(const Operation& operation) const {
  std::string text;
  for (int rank = 0; rank < members_.nranks; ++rank) {
    DevicePost post;
    const bool answering = operation.state == Operation::State::kAnswered;
    const bool here =
        rank == members_.rank ||
        (answering ? board_.answer(rank, operation.number) != DeviceBoard::Answer::kNone
                   : board_.call(rank, operation.number, &post) != DeviceBoard::Call::kNone);
    if (!here) text += (text.empty() ? "" : ", ") + names_[static_cast<std::size_t>(rank)];
  }
  return text;
}

/// The caller has advanced until there is an outcome, or gives up.
Result<bool> DevicePeers::meet(int, std::uint64_t number, const WaitPolicy& policy,
                               const Verdict& verdict, Napper&) {
  const auto found = std::find_if(outcomes_.begin(), outcomes_.end(),
                                  [&](const Outcome& outcome) { return outcome.number == number; });
  if (found != outcomes_.end()) {
    const Outcome outcome = std::move(*found);
    outcomes_.erase(found);
    if (!outcome.error.ok()) return outcome.error;
    return outcome.carried_out;
  }
  gates_.cancel(); // the others may still find the post
  if (verdict.raised() || operations_.empty()) return verdict.status();
  const Operation& operation = operations_.front();
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress for {:.1f} s. {} in {}: waiting for {} to make the call. Ranks that "
                  "share a device wait for each other's calls; one thread that acts for several "
                  "ranks must make their calls between whorlGroupStart and whorlGroupEnd",
                  static_cast<double>(policy.timeout_ns) * 1e-9,
                  names_[static_cast<std::size_t>(members_.rank)], describe(operation.request),
                  missing(operation)));
}

} // namespace whorl
