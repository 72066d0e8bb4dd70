#include "device/ipc/slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "device/kernel/fused.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

int workers_of(const Request& request, int nranks) {
  int workers = 0;
  const auto of = static_cast<std::size_t>(nranks);
  while (workers < nranks && slice_of(request, static_cast<std::size_t>(workers), of).count > 0) {
    ++workers;
  }
  return workers;
}

} // namespace

bool DeviceSlices::describe(const Request& request, DevicePost& post) {
  const auto find = [&](const void* buffer, std::size_t bytes, gpu::SharedMemory& memory) {
    if (bytes == 0) return true;
    const auto found = exports_.find(buffer, bytes);
    if (found) memory = *found;
    return found && (found->mappings == 0 || mappings_.possible());
  };
  return find(request.send, input_bytes(request, members_.rank, members_.nranks), post.input) &&
         find(request.recv, output_bytes(request, members_.rank, members_.nranks), post.output);
}

bool DeviceSlices::known(std::span<const DevicePost> posts) const {
  const auto known = [&](int rank, const gpu::SharedMemory& memory) {
    return memory.bytes == 0 || imports_.has(rank, memory);
  };
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts[static_cast<std::size_t>(rank)];
    if (!known(rank, post.input) || !known(rank, post.output)) return false;
  }
  return true;
}

void DeviceSlices::begin_mapping(std::uint64_t number, std::span<const DevicePost> posts) {
  const gpu::ContextGuard guard(context_);
  new_memory_.clear();
  mappings_.begin(number);
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts[static_cast<std::size_t>(rank)];
    const auto hand_over = [&](const gpu::SharedMemory& memory) {
      if (memory.bytes == 0 || memory.mappings == 0 || imports_.has(rank, memory)) return;
      if (rank == members_.rank) {
        mappings_.give(memory, exports_.hold(memory));
      } else if (!is_here(rank)) {
        mappings_.expect(rank, memory);
      }
    };
    hand_over(post.input);
    if (post.output.id != post.input.id) hand_over(post.output);
  }
}

Progress DeviceSlices::hand_over() {
  const gpu::ContextGuard guard(context_);
  return mappings_.step();
}

void DeviceSlices::stop_mapping() {
  const gpu::ContextGuard guard(context_);
  mappings_.abandon();
}

bool DeviceSlices::is_here(int rank) const { return members_.same_process(rank, members_.rank); }

Status DeviceSlices::map(std::span<const DevicePost> posts) {
  const gpu::ContextGuard guard(context_);
  Status first;
  new_memory_.clear();
  // Unmapping may wait for streams. At this point no stream of this process waits for a call that
  // another rank of the process has yet to make.
  imports_.close_retired(sync_.passed());
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const DevicePost& post = posts[index];
    for (const gpu::SharedMemory* const memory : {&post.input, &post.output}) {
      if (memory->bytes == 0 || imports_.has(rank, *memory)) continue;
      const bool tried = std::any_of(
          new_memory_.begin(), new_memory_.end(),
          [&](const NewMemory& one) { return one.rank == rank && one.memory.id == memory->id; });
      if (tried) continue; // without success
      new_memory_.push_back({rank, *memory});
      const std::array keep{post.input.id, post.output.id};
      imports_.make_room(rank, *memory, keep);
      const Status opened = open(rank, *memory, is_here(rank));
      if (first.ok()) first = opened;
    }
  }
  mappings_.clear();
  return first;
}

/// Maps memory of a rank, if need be after waiting until memory in its way is no longer used.
Status DeviceSlices::open(int rank, const gpu::SharedMemory& memory, bool here) {
  if (memory.mappings > 0) {
    return imports_.open_run(rank, memory, sync_.next(), here, mappings_.take(rank, memory));
  }
  bool busy = false;
  close_retired(imports_.in_the_way(rank, &memory));
  Status status = imports_.open(rank, memory, sync_.next(), here, busy);
  if (!busy) return status;
  imports_.unpin(rank, memory);
  close_retired(imports_.in_the_way(rank, nullptr));
  return imports_.open(rank, memory, sync_.next(), here, busy);
}

/// Waits until the streams have passed operation `last`, for 0.2 s at most because they may depend
/// on what the program does after this call, and unmaps retired memory.
void DeviceSlices::close_retired(std::uint64_t last) {
  constexpr WaitPolicy kBriefly{.timeout_ns = 200'000'000, .spins = 0, .yield_ns = 0};
  ClockWaiter clock;
  static_cast<void>(
      wait_until([&] { return sync_.passed() >= last ? Progress::kDone : Progress::kIdle; },
                 kBriefly, *watch_.comm_error, clock));
  imports_.close_retired(sync_.passed());
}

void DeviceSlices::forget_new() {
  const gpu::ContextGuard guard(context_);
  mappings_.abandon();
  for (const NewMemory& one : new_memory_) imports_.forget(one.rank, one.memory);
  imports_.forget_all();
  imports_.close_retired(sync_.passed());
}

/// Sets the requests of all ranks, with the addresses of their buffers in this process.
Status DeviceSlices::find_buffers(const Request& request, std::span<const DevicePost> posts,
                                  std::uint64_t epoch) {
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const DevicePost& post = posts[index];
    Request& here = requests_[index] = request;
    const auto use = [&](const gpu::SharedMemory& memory, std::size_t bytes) -> std::byte* {
      if (bytes == 0 || !memory.valid(bytes) || !imports_.has(rank, memory)) return nullptr;
      return imports_.use(rank, memory, epoch);
    };
    const std::size_t in = input_bytes(request, rank, members_.nranks);
    const std::size_t out = output_bytes(request, rank, members_.nranks);
    here.send = use(post.input, in);
    here.recv = use(post.output, out);
    if ((in > 0 && here.send == nullptr) || (out > 0 && here.recv == nullptr)) {
      return Status::error(Code::kInternalError,
                           fmt::format("{} sent a malformed description of its buffers in {}",
                                       names_[index], whorl::describe(request)));
    }
  }
  return {};
}

Status DeviceSlices::launch(CUstream stream, int workers) const {
  if (members_.rank >= workers) return {};
  return launch_device_work(
      requests_, slice_of(requests_[0], static_cast<std::size_t>(members_.rank), requests_.size()),
      sync_.cancelled(), stream);
}

Status DeviceSlices::queue(const Request& request, std::span<const DevicePost> posts,
                           StreamSync::Operation barrier) {
  WHORL_TRY(find_buffers(request, posts, sync_.next()));
  barrier.workers = workers_of(request, members_.nranks);
  Status status = sync_.pass(barrier, [&] { return launch(barrier.stream, barrier.workers); });
  imports_.trim();
  return status;
}

Status DeviceSlices::capture(const Request& request, std::span<const DevicePost> posts,
                             StreamSync::Operation barrier, const Capture& into,
                             DeviceReplays& replays) {
  WHORL_TRY(find_buffers(request, posts, sync_.next() - 1)); // sync_ counts no captures
  for (int rank = 0; rank < members_.nranks; ++rank) {
    const DevicePost& post = posts[static_cast<std::size_t>(rank)];
    for (const gpu::SharedMemory* const memory : {&post.input, &post.output}) {
      if (memory->bytes > 0) imports_.pin(rank, *memory, replays.next());
    }
  }
  barrier.workers = std::max(1, workers_of(request, members_.nranks)); // rank 0 waits for all
  Status status =
      replays.capture(barrier, into, [&] { return launch(barrier.stream, barrier.workers); });
  imports_.trim();
  return status;
}

void DeviceSlices::release(std::span<const DevicePost> posts) {
  const auto first = std::min_element(
      posts.begin(), posts.end(),
      [](const DevicePost& a, const DevicePost& b) { return a.released < b.released; });
  imports_.release(first->released);
}

} // namespace whorl
