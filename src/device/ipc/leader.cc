#include "device/ipc/leader.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "base/bytes.h"
#include "device/kernel/blocks.h"
#include "device/kernel/fused.h"
#include "gpu/driver.h"

namespace whorl {

/// Calls `action` with each rank of another process and each of its buffers.
template <class Action>
void DeviceLeader::for_all_of_others(std::span<const DevicePost> posts, Action&& action) const {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    if (members_.same_process(rank, members_.rank)) continue;
    const DevicePost& post = posts[static_cast<std::size_t>(rank)];
    for (const gpu::SharedMemory* const memory : {&post.input, &post.output}) {
      if (memory->bytes > 0) action(rank, post, *memory);
    }
  }
}

void DeviceLeader::begin(std::uint64_t number, std::span<const DevicePost> posts) {
  number_ = number;
  receiver_.begin(number);
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts[static_cast<std::size_t>(rank)];
    const auto needs = [&](const gpu::SharedMemory& memory) {
      return memory.bytes > 0 && memory.mappings > 0 && !imports_.has(rank, memory);
    };
    SharedState::Wanted wanted{.input = needs(post.input), .output = needs(post.output)};
    if (wanted.input && post.input.id == post.output.id) wanted.output = false;
    if (wanted.input) receiver_.expect(rank, post.input);
    if (wanted.output) receiver_.expect(rank, post.output);
    if (wanted.any()) board_.ask(rank, number, wanted);
  }
}

Progress DeviceLeader::map(std::span<const DevicePost> posts) {
  const gpu::ContextGuard guard(context_);
  Progress progress = receiver_.step();
  error_ = receiver_.error();
  for (int rank = 0; error_.ok() && rank < members_.nranks; ++rank) {
    if (waits_for(rank) && board_.answer(rank, number_) == SharedState::Answer::kNo) {
      error_ = Status::error(Code::kRemoteError, names_[static_cast<std::size_t>(rank)] +
                                                     " could not hand over descriptors of it");
    }
  }
  if (progress == Progress::kDone) error_ = map_new(posts);
  if (!error_.ok()) progress = Progress::kFailed;
  if (progress == Progress::kFailed) receiver_.abandon();
  return progress;
}

void DeviceLeader::stop() {
  const gpu::ContextGuard guard(context_);
  receiver_.abandon();
}

Status DeviceLeader::map_new(std::span<const DevicePost> posts) {
  Status first;
  bool any = false;
  for_all_of_others(posts, [&](int rank, const DevicePost& post, const gpu::SharedMemory& memory) {
    if (!first.ok() || imports_.has(rank, memory)) return;
    // Unmapping may wait for streams. At this point no stream of this process waits for a call that
    // another rank of the process has yet to make.
    if (!std::exchange(any, true)) imports_.close_retired(sync_.passed());
    const std::array keep{post.input.id, post.output.id};
    imports_.make_room(rank, memory, keep);
    first = open(rank, memory);
  });
  return first;
}

/// Maps memory of a rank, if need be after waiting until memory in its way is no longer used.
Status DeviceLeader::open(int rank, const gpu::SharedMemory& memory) {
  if (memory.mappings > 0) {
    return imports_.open_run(rank, memory, sync_.next(), receiver_.take(rank, memory));
  }
  bool busy = false;
  close_retired(imports_.in_the_way(rank, &memory));
  Status status = imports_.open(rank, memory, sync_.next(), busy);
  if (!busy) return status;
  imports_.unpin(rank, memory);
  close_retired(imports_.in_the_way(rank, nullptr));
  return imports_.open(rank, memory, sync_.next(), busy);
}

/// Waits until the streams have passed operation `last`, for 0.2 s at most because they may depend
/// on what the program does after this call, and unmaps retired memory.
void DeviceLeader::close_retired(std::uint64_t last) {
  constexpr WaitPolicy kBriefly{.timeout_ns = 200'000'000, .spins = 0, .yield_ns = 0};
  ClockWaiter clock;
  static_cast<void>(
      wait_until([&] { return sync_.passed() >= last ? Progress::kDone : Progress::kIdle; },
                 kBriefly, *watch_.comm_error, clock));
  imports_.close_retired(sync_.passed());
}

/// Sets the blocks of a rank's request, whose buffers are at `send` and `recv`, from those that the
/// rank has posted. Returns false if the blocks are not within the buffers.
bool DeviceLeader::find_blocks(int rank, const DevicePost& post, Request& request) const {
  const auto n = static_cast<std::size_t>(members_.nranks);
  std::vector<BlockPlace> places(2 * n);
  board_.blocks(rank, number_, places);
  auto blocks = std::make_shared<Blocks>();
  const std::size_t element = size_of(request.type);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [offset, count] = places[i];
    const std::uint64_t bytes = i < n ? post.input.bytes : post.output.bytes;
    if (count > 0 && (offset > bytes || count > (bytes - offset) / element)) return false;
    auto* const buffer = const_cast<std::byte*>(
        static_cast<const std::byte*>(i < n ? request.send : request.recv)); // inputs are only read
    (i < n ? blocks->sends : blocks->receives)
        .push_back({.used = true, .data = count > 0 ? buffer + offset : nullptr, .count = count});
  }
  request.blocks = std::move(blocks);
  return true;
}

/// Sets the requests of all ranks, with the addresses of their buffers in this process, and the
/// launches.
Status DeviceLeader::find_buffers(const Request& request, std::span<const DevicePost> posts,
                                  std::uint64_t epoch) {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const DevicePost& post = posts[index];
    Request& here = requests_[index] = request;
    here.blocks = nullptr;
    here.table = nullptr;
    const bool uneven = post.uneven != 0;
    const std::size_t in = uneven ? post.input.bytes : input_bytes(here, rank, members_.nranks);
    const std::size_t out = uneven ? post.output.bytes : output_bytes(here, rank, members_.nranks);
    here.send = address_of(rank, post.input, in, epoch);
    here.recv = address_of(rank, post.output, out, epoch);
    if ((in > 0 && here.send == nullptr) || (out > 0 && here.recv == nullptr) ||
        (uneven && !(may_have_blocks(request.collective) && find_blocks(rank, post, here)))) {
      return Status::error(Code::kInternalError,
                           fmt::format("{} sent a malformed description of its buffers in {}",
                                       names_[index], describe(request)));
    }
  }
  auto works = device_work(requests_);
  if (!works.ok()) return works.status();
  works_ = *std::move(works);
  return {};
}

/// Returns the address of a buffer in this process; null if there is none, or it is malformed.
std::byte* DeviceLeader::address_of(int rank, const gpu::SharedMemory& memory, std::size_t bytes,
                                    std::uint64_t epoch) {
  if (bytes == 0 || !memory.valid(bytes)) return nullptr;
  if (members_.same_process(rank, members_.rank)) {
    return reinterpret_cast<std::byte*>(memory.address);
  }
  return imports_.has(rank, memory) ? imports_.use(rank, memory, epoch) : nullptr;
}

Status DeviceLeader::launch(const Request& request, CUstream stream) {
  return launch_device_work(request, works_, sync_.stop_words(), stream);
}

Status DeviceLeader::queue(const Request& request, std::span<const DevicePost> posts,
                           const StreamSync::Operation& barrier) {
  WHORL_TRY(find_buffers(request, posts, sync_.next()));
  Status status = sync_.pass(barrier, [&] { return launch(request, barrier.stream); });
  imports_.trim();
  return status;
}

Status DeviceLeader::capture(const Request& request, std::span<const DevicePost> posts,
                             const StreamSync::Operation& barrier, const Capture& into,
                             DeviceReplays& replays) {
  WHORL_TRY(find_buffers(request, posts, sync_.next() - 1)); // sync_ counts no captures
  for_all_of_others(posts, [&](int rank, const DevicePost&, const gpu::SharedMemory& memory) {
    imports_.pin(rank, memory, replays.next());
  });
  Status status = replays.capture(barrier, into, [&] { return launch(request, barrier.stream); });
  imports_.trim();
  return status;
}

} // namespace whorl
