#include "device/ipc/stream_sync.h"

#include <fmt/core.h>

#include <optional>

#include "base/thread.h"
#include "engine/request.h"
#include "gpu/driver.h"
#include "gpu/stream_words.h"
#include "gpu/work.h"

namespace whorl {
namespace {

using StreamBarrier = SharedState::StreamBarrier;

constexpr WaitPolicy kNoTimeout{.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0};

} // namespace

class StreamSync::WatchWaiter final : public Waiter {
 public:
  explicit WatchWaiter(StreamSync& barriers) : sync_(barriers) {}
  void block(std::uint64_t max_ns) noexcept override { clock_.block(max_ns); }
  void poll_failures(std::uint64_t) noexcept override {
    sync_.watch_.look_at_peers();
    sync_.look_at_device();
  }

 private:
  StreamSync& sync_;
  ClockWaiter clock_;
};

class StreamSync::Batch {
 public:
  Batch(const StreamSync& barriers, std::uint64_t epoch)
      : sync_(barriers), epoch_(static_cast<std::uint32_t>(epoch)) {}
  void write(Word word, int rank) { words_.write(address(word, rank), epoch_); }
  void wait(Word word, int rank) {
    words_.wait(address(word, rank), epoch_, CU_STREAM_WAIT_VALUE_GEQ);
  }
  Status queue(CUstream stream) { return words_.queue(stream); }

 private:
  CUdeviceptr address(Word word, int rank) const noexcept {
    return reinterpret_cast<CUdeviceptr>(sync_.on_device(&(sync_.board_.barrier(rank).*word)));
  }

  static_assert(gpu::kMaxBuffers + 2 <= gpu::StreamWords::kMaxOperations);
  const StreamSync& sync_;
  const std::uint32_t epoch_;
  gpu::StreamWords words_;
};

Status StreamSync::prepare() {
  const std::span<std::byte> words = board_.words();
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
  WHORL_TRY(probe_.prepare());
  WHORL_CUDA_TRY(cuMemHostRegister(words.data(), words.size(),
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  registered_ = true;
  WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words_, words.data(), 0));
  return {};
}

StreamSync::~StreamSync() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    event_.notify();
    thread_.join();
  }
  if (!registered_) return;
  const gpu::ContextGuard guard(context_);
  static_cast<void>(gpu::driver()->cuMemHostUnregister(board_.words().data()));
}

bool StreamSync::has_come(Word word, int rank, std::uint64_t epoch) const noexcept {
  // Pairs with the write of a stream, or of a host in open().
  const std::uint32_t now = (board_.barrier(rank).*word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - static_cast<std::uint32_t>(epoch)) >= 0;
}

bool StreamSync::all_have_come(Word word, std::uint64_t epoch) const noexcept {
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    if (!has_come(word, rank, epoch)) return false;
  }
  return true;
}

std::uint64_t StreamSync::passed() const noexcept {
  const std::uint32_t now = board_.barrier(rank_).passed.load(std::memory_order_acquire);
  return queued_ - (static_cast<std::uint32_t>(queued_) - now);
}

void StreamSync::flush() const noexcept {
  ClockWaiter clock; // the watching thread makes this end
  static_cast<void>(
      wait_until([this] { return passed() == queued_ ? Progress::kDone : Progress::kIdle; },
                 kNoTimeout, *watch_.comm_error, clock));
}

Status StreamSync::pass(const Operation& operation, const std::function<Status()>& share) {
  if (Status status = enter(operation); !status.ok()) { // others may wait for "ready" already
    watch_.fail(status);
    cancel();
    return status;
  }
  Status status = share();
  if (!status.ok()) {
    watch_.fail(status);
    cancel();
  }
  WHORL_TRY(leave(operation));
  return status;
}

Status StreamSync::enter(const Operation& operation) {
  if (!thread_.joinable()) {
    auto thread = start_thread("whorl-barriers", [this] { watch_all(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
  }
  if (queued_ > 0 && last_stream_ != operation.stream_id) { // words are written in order
    Batch previous(*this, queued_);
    previous.wait(&StreamBarrier::passed, rank_);
    WHORL_TRY(previous.queue(operation.stream));
  }
  Batch batch(*this, next());
  batch.write(&StreamBarrier::ready, rank_);
  if (operation.work != Work::kLeader || rank_ == kDeviceLeader) {
    for (int rank = 0; rank < board_.nranks(); ++rank) {
      if (rank != rank_) batch.wait(&StreamBarrier::ready, rank);
    }
  }
  return batch.queue(operation.stream);
}

Status StreamSync::leave(const Operation& operation) {
  Batch batch(*this, next());
  batch.write(&StreamBarrier::done,
              rank_); // also without a share: words must not be 2³¹ epochs behind
  if (operation.work == Work::kLeader && rank_ != kDeviceLeader) {
    batch.wait(&StreamBarrier::done, kDeviceLeader);
  }
  batch.write(&StreamBarrier::passed, rank_);
  if (Status status = batch.queue(operation.stream); !status.ok()) {
    watch_.fail(status);
    cancel();
    open(next()); // for the waits that enter() has queued
    return status;
  }
  ++queued_;
  last_stream_ = operation.stream_id;
  // Pairs with the load of open_until_passed().
  board_.barrier(rank_).queued.store(static_cast<std::uint32_t>(queued_),
                                     std::memory_order_seq_cst);
  {
    const std::lock_guard lock(mutex_);
    watched_.push_back({queued_, operation.timeout_ns, operation.work, operation.call});
  }
  event_.notify();
  return {};
}

void StreamSync::watch_all() {
  while (true) {
    std::optional<Watched> operation;
    Event::Waiter waiter(event_);
    const CommError never_set;
    bool stopped = false;
    static_cast<void>(wait_until(
        [&] {
          const std::lock_guard lock(mutex_);
          if (watched_.empty()) {
            stopped = stop_;
            return stop_ ? Progress::kDone : Progress::kIdle;
          }
          operation = std::move(watched_.front());
          watched_.pop_front();
          return Progress::kDone;
        },
        {.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0, .block_ns = 1'000'000'000}, never_set,
        waiter));
    if (stopped) return;
    watch(*operation);
  }
}

void StreamSync::watch(const Watched& operation) {
  WatchWaiter waiter(*this);
  const auto wait = [&](auto&& over, std::uint64_t timeout_ns) {
    WaitPolicy policy = kNoTimeout;
    policy.timeout_ns = timeout_ns;
    return wait_until([&] { return over() ? Progress::kDone : Progress::kIdle; }, policy,
                      *watch_.comm_error, waiter);
  };
  const auto own = [&](Word word) { return has_come(word, rank_, operation.epoch); };
  // Work queued before the operation may take any time; from then on the operation depends on the
  // peers.
  WaitResult result = wait([&] { return own(&StreamBarrier::ready); }, kNoTimeout.timeout_ns);
  if (result == WaitResult::kReady && operation.work == Work::kEach) {
    result = wait([&] { return all_have_come(&StreamBarrier::ready, operation.epoch); },
                  operation.timeout_ns);
    // Kernels have a timeout of their own, and kernels of other ranks may still write to this
    // rank's memory.
    if (result == WaitResult::kReady) {
      result = wait(
          [&] {
            return own(&StreamBarrier::passed) &&
                   all_have_come(&StreamBarrier::done, operation.epoch);
          },
          kNoTimeout.timeout_ns);
    }
  } else if (result == WaitResult::kReady) {
    result = wait([&] { return own(&StreamBarrier::passed); }, operation.timeout_ns);
  }
  if (result == WaitResult::kReady) {
    if (!board_.stop_words().is_set()) return;
    // A kernel may have given up, and a rank that has failed has opened the barriers for all:
    // kernels of others may still be running.
    watch_.look_at_peers();
  }
  if (result == WaitResult::kTimedOut) {
    Status late = too_late(operation);
    // A rank that has failed writes the words of all, which then do not show who was missing:
    // the error of that rank, which look_at_peers() finds, is the reason.
    constexpr std::uint64_t kReasonNs = 1'000'000'000;
    if (board_.stop_words().is_set()) wait([] { return false; }, kReasonNs);
    watch_.fail(std::move(late));
  }
  open_until_passed(operation.epoch);
}

void StreamSync::look_at_device() {
  if (lost_.load(std::memory_order_relaxed)) return;
  const Status fault = probe_.look();
  if (fault.ok()) return;
  lost_.store(true, std::memory_order_relaxed);
  watch_.fail(fault.with_context(names_[static_cast<std::size_t>(rank_)]));
}

/// Writes words beyond all epochs that any rank has queued.
void StreamSync::open(std::uint64_t epoch) noexcept {
  constexpr std::uint32_t kFar = 1U << 30;
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    StreamBarrier& barrier = board_.barrier(rank);
    barrier.ready.store(static_cast<std::uint32_t>(epoch) + kFar, std::memory_order_release);
    barrier.done.store(static_cast<std::uint32_t>(epoch) + kFar, std::memory_order_release);
  }
  if (!lost_.load(std::memory_order_relaxed)) return;
  // The other ranks wait for "passed", and no kernel of this rank accesses their memory any more.
  StreamBarrier& own = board_.barrier(rank_);
  own.passed.store(own.queued.load(std::memory_order_seq_cst), std::memory_order_release);
}

/// Opens the barriers until this rank's streams have passed `epoch`. Streams of other ranks may
/// overwrite the words with smaller values, but only once for each operation that is queued, so
/// this ends.
void StreamSync::open_until_passed(std::uint64_t epoch) noexcept {
  constexpr std::uint64_t kKernelTimeoutNs = 200'000'000;
  cancel();
  const CommError never_set;
  WatchWaiter waiter(*this);
  static_cast<void>(wait_until(
      [&] {
        open(epoch);
        const bool over =
            lost_.load(std::memory_order_relaxed) || has_come(&StreamBarrier::passed, rank_, epoch);
        return over ? Progress::kDone : Progress::kIdle;
      },
      kNoTimeout, never_set, waiter));
  // A kernel of another rank that had begun may still use this rank's memory. The wait has a limit,
  // one for all operations that are queued, because a dead rank does not pass.
  const std::uint64_t now_ns = sys().now_ns();
  if (kernels_end_ns_ == 0) kernels_end_ns_ = now_ns + kKernelTimeoutNs;
  WaitPolicy policy = kNoTimeout;
  policy.timeout_ns = kernels_end_ns_ > now_ns ? kernels_end_ns_ - now_ns : 0;
  static_cast<void>(wait_until(
      [&] {
        open(epoch);
        for (int rank = 0; rank < board_.nranks(); ++rank) {
          const std::uint32_t queued = board_.barrier(rank).queued.load(std::memory_order_seq_cst);
          const auto ahead = static_cast<std::int32_t>(queued - static_cast<std::uint32_t>(epoch));
          if (!has_come(&StreamBarrier::passed, rank, ahead >= 0 ? epoch : queued))
            return Progress::kIdle;
        }
        return Progress::kDone;
      },
      policy, never_set, waiter));
}

Status StreamSync::too_late(const Watched& operation) const {
  std::string names;
  const auto add = [&](Word word, int rank) {
    if (rank == rank_ || has_come(word, rank, operation.epoch)) return;
    names += (names.empty() ? "" : ", ") + names_[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < board_.nranks(); ++rank) add(&StreamBarrier::ready, rank);
  const bool all_ready = names.empty();
  if (all_ready && operation.work == Work::kLeader) add(&StreamBarrier::done, kDeviceLeader);
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress for {:.1f} s. {} in {}: waiting for {} to {}",
                  static_cast<double>(operation.timeout_ns) * 1e-9,
                  names_[static_cast<std::size_t>(rank_)], describe(operation.call),
                  names.empty() ? "the device" : names,
                  all_ready ? "do the work"
                            : "come to the operation in its stream; what was queued there before "
                              "it does not end, or that rank is stopped"));
}

} // namespace whorl
