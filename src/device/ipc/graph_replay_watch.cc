// The thread that watches replayed operations, and its end.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "device/ipc/graph_replay.h"
#include "engine/request.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

constexpr WaitPolicy kNoTimeout{.timeout_ns = UINT64_MAX, .spins = 0, .yield_ns = 0};
constexpr std::uint64_t kLookNs = 20'000'000;

} // namespace

class DeviceReplays::WatchWaiter final : public Waiter {
 public:
  WatchWaiter(DeviceReplays& replays, Event& event) : replays_(replays), waiter_(event) {}
  void block(std::uint64_t max_ns) noexcept override { waiter_.block(max_ns); }
  void poll_failures(std::uint64_t) noexcept override { replays_.poll_failures(); }

 private:
  DeviceReplays& replays_;
  Event::Waiter waiter_;
};

DeviceReplays::~DeviceReplays() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release); // pairs with the load of watch_all()
    event_.notify();
    thread_.join();
  }
}

bool DeviceReplays::inside() const noexcept {
  // Pairs with the write of a stream.
  return board_.barrier(rank_).replaying.load(std::memory_order_acquire) != 0;
}

void DeviceReplays::flush() const noexcept {
  ClockWaiter clock; // the watching thread makes this end
  static_cast<void>(wait_until([this] { return inside() ? Progress::kIdle : Progress::kDone; },
                               kNoTimeout, *watch_.comm_error, clock));
}

void DeviceReplays::end() noexcept {
  constexpr std::uint64_t kQuietNs = 100'000'000, kMaxNs = 10'000'000'000;
  if (!thread_.joinable()) return;
  const CommError never_set;
  ClockWaiter clock;
  const auto& replays = board_.barrier(rank_).replays;
  const auto over = [&] {
    return !inside() || lost_.load(std::memory_order_relaxed) ? Progress::kDone : Progress::kIdle;
  };
  static_cast<void>(wait_until(over, kNoTimeout, never_set, clock));
  if (!watch_.comm_error->is_set() || released() == next()) return;
  // Waits for replays that were queued behind the failed operation, too.
  const std::uint64_t begin_ns = sys().now_ns();
  std::uint64_t quiet_ns = begin_ns;
  std::uint32_t last = replays.load(std::memory_order_acquire);
  static_cast<void>(wait_until(
      [&] {
        const std::uint64_t now_ns = sys().now_ns();
        const std::uint32_t now = replays.load(std::memory_order_acquire);
        if (now != last || inside()) quiet_ns = now_ns;
        last = now;
        return now_ns - quiet_ns >= kQuietNs || now_ns - begin_ns >= kMaxNs ||
                       lost_.load(std::memory_order_relaxed)
                   ? Progress::kDone
                   : Progress::kIdle;
      },
      kNoTimeout, never_set, clock));
}

void DeviceReplays::watch_all() {
  WatchWaiter waiter(*this, event_);
  const auto stopped = [this] { return stop_.load(std::memory_order_acquire); };
  WaitPolicy policy = kNoTimeout;
  policy.block_ns = kLookNs;
  const WaitResult result = wait_until(
      [&] {
        if (stopped()) return Progress::kDone;
        look();
        return Progress::kIdle;
      },
      policy, *watch_.comm_error, waiter);
  if (result == WaitResult::kReady) return;
  // The communicator has failed; the error is set before streams go on because of it. A kernel that
  // has begun may still use memory of this rank, so streams that wait for the kernels of others go
  // on a little later.
  constexpr std::uint64_t kKernelTimeoutNs = 200'000'000;
  watch_.fail(watch_.comm_error->status());
  board_.stop_words().set();
  const std::uint64_t failed_ns = sys().now_ns();
  policy.block_ns = 50'000;
  const CommError never_set;
  static_cast<void>(wait_until(
      [&] {
        if (stopped()) return Progress::kDone;
        open(sys().now_ns() - failed_ns >= kKernelTimeoutNs);
        return Progress::kIdle;
      },
      policy, never_set, waiter));
}

/// Ends the communicator if this rank's streams have been in one operation for too long.
void DeviceReplays::look() {
  const SharedState::StreamBarrier& own = board_.barrier(rank_);
  const std::uint32_t replaying = own.replaying.load(std::memory_order_acquire);
  const std::uint32_t replays = own.replays.load(std::memory_order_acquire);
  const std::uint64_t now_ns = sys().now_ns();
  if (replaying == 0 || replaying != seen_replaying_ || replays != seen_replays_) {
    seen_replaying_ = replaying;
    seen_replays_ = replays;
    seen_ns_ = now_ns;
    return;
  }
  const auto operation = find(replaying);
  if (!operation || now_ns - seen_ns_ < operation->timeout_ns) return;
  Status late = too_late(*operation);
  // A rank that has failed lets its streams go on, and then its words do not show where it was: its
  // own error, which look_at_peers() finds, is the reason.
  constexpr std::uint64_t kReasonNs = 1'000'000'000;
  const bool failed_elsewhere = board_.stop_words().is_set();
  if (failed_elsewhere && now_ns - seen_ns_ < operation->timeout_ns + kReasonNs) return;
  watch_.fail(std::move(late));
}

void DeviceReplays::poll_failures() {
  const bool cancelled = board_.stop_words().is_set();
  if ((inside() || cancelled) && !watch_.comm_error->is_set()) watch_.look_at_peers();
  if (lost_.load(std::memory_order_relaxed)) return;
  const Status fault = fault_.look(); // also for replays that the fault has kept from beginning
  if (fault.ok()) return;
  lost_.store(true, std::memory_order_relaxed);
  watch_.fail(fault.with_context(names_[static_cast<std::size_t>(rank_)]));
}

std::optional<DeviceReplays::Captured> DeviceReplays::find(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(operations_.begin(), operations_.end(), [&](const Captured& operation) {
        return static_cast<std::uint32_t>(operation.number) == number;
      });
  if (found == operations_.end()) return std::nullopt;
  return *found;
}

/// Writes the words that this rank's streams wait for; each of their operations needs that anew.
void DeviceReplays::open(bool all) const noexcept {
  const std::uint32_t number = board_.barrier(rank_).replaying.load(std::memory_order_acquire);
  if (number == 0) return;
  // Stores pair with the waits of a stream.
  if (rank_ != kDeviceLeader) {
    if (all) board_.barrier(rank_).replay_done.store(number, std::memory_order_release);
    return;
  }
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    board_.barrier(rank).replay_ready.store(number, std::memory_order_release);
  }
}

Status DeviceReplays::too_late(const Captured& operation) const {
  const SharedState::StreamBarrier& own = board_.barrier(rank_);
  const std::uint32_t begun = own.replays.load(std::memory_order_acquire);
  const auto number = static_cast<std::uint32_t>(operation.number);
  std::string absent, elsewhere, at_work;
  const auto add = [&](std::string& names, int rank) {
    names += (names.empty() ? "" : ", ") + names_[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < board_.nranks(); ++rank) {
    if (rank == rank_) continue;
    const SharedState::StreamBarrier& barrier = board_.barrier(rank);
    const std::uint32_t replaying = barrier.replaying.load(std::memory_order_acquire);
    const std::uint32_t replays = barrier.replays.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(replays - begun) < 0) {
      add(absent, rank);
    } else if (replays == begun && replaying != 0 && replaying != number) {
      add(elsewhere, rank);
    } else if (rank == kDeviceLeader && own.replay_done.load(std::memory_order_acquire) != number) {
      add(at_work, rank);
    }
  }
  const std::string& names = !absent.empty() ? absent : !elsewhere.empty() ? elsewhere : at_work;
  const char* const what =
      !absent.empty() ? "come to the operation in its replay; it has not launched its graph, what "
                        "comes before the operation does not end, or that rank is stopped"
      : !elsewhere.empty() ? "come to the operation; it replays another one. All ranks must launch "
                             "their graphs in the same order"
                           : "do the work";
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress for {:.1f} s. {} in {}, replayed by a graph: "
                  "waiting for {} to {}",
                  static_cast<double>(operation.timeout_ns) * 1e-9,
                  names_[static_cast<std::size_t>(rank_)], describe(operation.call),
                  names.empty() ? "the device" : names, what));
}

} // namespace whorl
