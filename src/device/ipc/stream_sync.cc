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

using Gate = DeviceBoard::Gate;

constexpr WaitPolicy kPatient{.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0};

} // namespace

class DeviceGates::WatchNapper final : public Napper {
 public:
  explicit WatchNapper(DeviceGates& gates) : gates_(gates) {}
  void nap(std::uint64_t max_ns) noexcept override { clock_.nap(max_ns); }
  void look_around(std::uint64_t) noexcept override {
    gates_.look_at_device();
    gates_.watch_.look_at_peers();
  }

 private:
  DeviceGates& gates_;
  ClockNapper clock_;
};

class DeviceGates::Batch {
 public:
  Batch(const DeviceGates& gates, std::uint64_t epoch)
      : gates_(gates), epoch_(static_cast<std::uint32_t>(epoch)) {}
  void write(Word word, int rank) { words_.write(address(word, rank), epoch_); }
  void wait(Word word, int rank) {
    words_.wait(address(word, rank), epoch_, CU_STREAM_WAIT_VALUE_GEQ);
  }
  Status queue(CUstream stream) { return words_.queue(stream); }

 private:
  CUdeviceptr address(Word word, int rank) const noexcept {
    return reinterpret_cast<CUdeviceptr>(gates_.on_device(&(gates_.board_.gate(rank).*word)));
  }

  static_assert(gpu::kMaxBuffers + 2 <= gpu::StreamWords::kMost);
  const DeviceGates& gates_;
  const std::uint32_t epoch_;
  gpu::StreamWords words_;
};

Status DeviceGates::prepare() {
  const std::span<std::byte> words = board_.words();
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
  WHORL_TRY(probe_.prepare());
  WHORL_CUDA_TRY(cuMemHostRegister(words.data(), words.size(),
                                   CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  registered_ = true;
  WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words_, words.data(), 0));
  return {};
}

DeviceGates::~DeviceGates() {
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

bool DeviceGates::has_come(Word word, int rank, std::uint64_t epoch) const noexcept {
  // Pairs with the write of a stream, or of a host that opens the gates.
  const std::uint32_t now = (board_.gate(rank).*word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - static_cast<std::uint32_t>(epoch)) >= 0;
}

bool DeviceGates::all_have_come(Word word, std::uint64_t epoch) const noexcept {
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    if (!has_come(word, rank, epoch)) return false;
  }
  return true;
}

std::uint64_t DeviceGates::passed() const noexcept {
  const std::uint32_t now = board_.gate(rank_).passed.load(std::memory_order_acquire);
  return queued_ - (static_cast<std::uint32_t>(queued_) - now);
}

void DeviceGates::flush() const noexcept {
  ClockNapper clock; // the thread that watches sees to it that this ends
  static_cast<void>(
      wait_until([this] { return passed() == queued_ ? Progress::kDone : Progress::kIdle; },
                 kPatient, *watch_.verdict, clock));
}

Status DeviceGates::pass(const Operation& operation, const std::function<Status()>& share) {
  WHORL_TRY(enter(operation));
  Status status = share();
  if (!status.ok()) {
    watch_.fail(status);
    cancel();
  }
  WHORL_TRY(leave(operation));
  return status;
}

Status DeviceGates::enter(const Operation& operation) {
  if (!thread_.joinable()) {
    auto thread = start_thread("whorl-gates", [this] { watch_all(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
  }
  if (queued_ > 0 && last_stream_ != operation.stream_id) { // words are written in order
    Batch previous(*this, queued_);
    previous.wait(&Gate::passed, rank_);
    WHORL_TRY(previous.queue(operation.stream));
  }
  Batch batch(*this, next());
  batch.write(&Gate::ready, rank_);
  if (rank_ < operation.workers || operation.workers == 0) {
    for (int rank = 0; rank < board_.nranks(); ++rank) {
      if (rank != rank_) batch.wait(&Gate::ready, rank);
    }
  }
  return batch.queue(operation.stream);
}

Status DeviceGates::leave(const Operation& operation) {
  Batch batch(*this, next());
  batch.write(&Gate::done, rank_); // also without a share: words must not be 2³¹ epochs behind
  for (int rank = 0; !operation.apart && rank < operation.workers; ++rank) {
    if (rank != rank_) batch.wait(&Gate::done, rank);
  }
  batch.write(&Gate::passed, rank_);
  if (Status status = batch.queue(operation.stream); !status.ok()) {
    watch_.fail(status);
    cancel();
    open(next()); // what enter() has queued
    return status;
  }
  ++queued_;
  last_stream_ = operation.stream_id;
  // Pairs with the load of open_until_passed().
  board_.gate(rank_).queued.store(static_cast<std::uint32_t>(queued_), std::memory_order_seq_cst);
  {
    const std::lock_guard lock(mutex_);
    watched_.push_back(
        {queued_, operation.timeout_ns, operation.workers, operation.apart, operation.call});
  }
  event_.notify();
  return {};
}

void DeviceGates::watch_all() {
  while (true) {
    std::optional<Watched> operation;
    Event::Waiter waiter(event_);
    const Verdict nobody;
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
        {.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0, .nap_ns = 1'000'000'000}, nobody,
        waiter));
    if (stopped) return;
    watch(*operation);
  }
}

void DeviceGates::watch(const Watched& operation) {
  WatchNapper napper(*this);
  const auto wait = [&](auto&& over, std::uint64_t timeout_ns) {
    WaitPolicy policy = kPatient;
    policy.timeout_ns = timeout_ns;
    return wait_until([&] { return over() ? Progress::kDone : Progress::kIdle; }, policy,
                      *watch_.verdict, napper);
  };
  const auto own = [&](Word word) { return has_come(word, rank_, operation.epoch); };
  // What is queued before it may take any time; from then on it depends on the peers.
  WaitResult result = wait([&] { return own(&Gate::ready); }, kPatient.timeout_ns);
  if (result == WaitResult::kReady && operation.apart) {
    result =
        wait([&] { return all_have_come(&Gate::ready, operation.epoch); }, operation.timeout_ns);
    // Kernels have a limit of their own. Those of others may still write to this rank's memory.
    if (result == WaitResult::kReady) {
      result =
          wait([&] { return own(&Gate::passed) && all_have_come(&Gate::done, operation.epoch); },
               kPatient.timeout_ns);
    }
  } else if (result == WaitResult::kReady) {
    result = wait([&] { return own(&Gate::passed); }, operation.timeout_ns);
  }
  if (result == WaitResult::kReady) {
    if (board_.cancelled().load(std::memory_order_seq_cst) == 0) return;
    // A kernel may have given up, and who has failed has opened the gates for all: kernels of
    // others may be at work yet.
    watch_.look_at_peers();
  }
  if (result == WaitResult::kTimedOut) watch_.fail(too_late(operation));
  open_until_passed(operation.epoch);
}

void DeviceGates::look_at_device() {
  if (lost_.load(std::memory_order_relaxed)) return;
  const Status fault = probe_.look();
  if (fault.ok()) return;
  lost_.store(true, std::memory_order_relaxed);
  watch_.fail(fault.with_context(names_[static_cast<std::size_t>(rank_)]));
}

/// Beyond what anybody has queued.
void DeviceGates::open(std::uint64_t epoch) noexcept {
  constexpr std::uint32_t kFar = 1U << 30;
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    Gate& gate = board_.gate(rank);
    gate.ready.store(static_cast<std::uint32_t>(epoch) + kFar, std::memory_order_release);
    gate.done.store(static_cast<std::uint32_t>(epoch) + kFar, std::memory_order_release);
  }
  if (!lost_.load(std::memory_order_relaxed)) return;
  // The kernels of this rank use nobody's memory any more, which the others wait for.
  Gate& own = board_.gate(rank_);
  own.passed.store(own.queued.load(std::memory_order_seq_cst), std::memory_order_release);
}

/// Lets all streams go on. Words of ranks that are alive are written by their streams as well, with
/// smaller values, but each only once for an operation that is queued; so this comes to an end.
void DeviceGates::open_until_passed(std::uint64_t epoch) noexcept {
  constexpr std::uint64_t kPatienceNs = 200'000'000;
  cancel();
  const Verdict nobody;
  WatchNapper napper(*this);
  static_cast<void>(wait_until(
      [&] {
        open(epoch);
        const bool over =
            lost_.load(std::memory_order_relaxed) || has_come(&Gate::passed, rank_, epoch);
        return over ? Progress::kDone : Progress::kIdle;
      },
      kPatient, nobody, napper));
  // A kernel of another rank that had begun may still use this rank's memory. A rank that is dead
  // does not pass.
  WaitPolicy policy = kPatient;
  policy.timeout_ns = kPatienceNs;
  static_cast<void>(wait_until(
      [&] {
        open(epoch);
        for (int rank = 0; rank < board_.nranks(); ++rank) {
          const std::uint32_t queued = board_.gate(rank).queued.load(std::memory_order_seq_cst);
          const auto ahead = static_cast<std::int32_t>(queued - static_cast<std::uint32_t>(epoch));
          if (!has_come(&Gate::passed, rank, ahead >= 0 ? epoch : queued)) return Progress::kIdle;
        }
        return Progress::kDone;
      },
      policy, nobody, napper));
}

Status DeviceGates::too_late(const Watched& operation) const {
  std::string names;
  const auto add = [&](Word word, int rank) {
    if (rank == rank_ || has_come(word, rank, operation.epoch)) return;
    names += (names.empty() ? "" : ", ") + names_[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < board_.nranks(); ++rank) add(&Gate::ready, rank);
  const bool all_ready = names.empty();
  for (int rank = 0; all_ready && rank < operation.workers; ++rank) add(&Gate::done, rank);
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress for {:.1f} s. {} in {}: waiting for {} to {}",
                  static_cast<double>(operation.timeout_ns) * 1e-9,
                  names_[static_cast<std::size_t>(rank_)], describe(operation.call),
                  names.empty() ? "the device" : names,
                  all_ready ? "do its share of the work"
                            : "come to the operation in its stream; what was queued there before "
                              "it does not end, or that rank is stopped"));
}

} // namespace whorl
