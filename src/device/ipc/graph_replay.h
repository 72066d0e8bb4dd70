#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/event.h"
#include "base/status.h"
#include "device/common/capture.h"
#include "device/common/capture_ends.h"
#include "device/common/group.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"
#include "gpu/fault.h"

namespace whorl {

/// Captured operations of a communicator, of ranks whose streams wait for each other by words in
/// shared memory. A graph repeats fixed values, so it cannot use the growing words of StreamSync:
/// each rank but the leader has two words of its own, and who has waited for a word sets it to 0
/// again; e is the number of the captured operation:
///
///     leader ── wait readyᵣ=e ─ readyᵣ=0 ─▶ kernel ─ doneᵣ=e ────────────────────────▶
///     rank r ── readyᵣ=e ─────────────────────────── wait doneᵣ=e ─ doneᵣ=0 ──▶
///
/// Neither word is written again before it has been set to 0: rank r goes on to its next operation
/// when it has got doneᵣ, which the leader writes after it has set readyᵣ to 0; and the leader
/// writes doneᵣ when it has got readyᵣ of that operation, which r writes after it has set doneᵣ of
/// the one before to 0. A barrier is an operation without a kernel. Ranks that replay different
/// operations at the same time wait for different numbers, and get an error.
///
/// A graph is launched without a call of this library, so a thread watches the words from the first
/// capture on: a kernel of each rank counts the replays that have begun, and a word says in which
/// operation the rank is. When the communicator fails, the thread writes the words that this rank's
/// streams wait for, again and again; kernels do nothing then.
///
/// Used by one thread at a time.
class DeviceReplays {
 public:
  /// Makes the replays of rank `rank`. `barriers` must be prepared before the first call, and may
  /// be destroyed before this object; `watch` outlives this object.
  DeviceReplays(const SharedState& board, int rank, std::vector<std::string> names,
                const DeviceWatch& watch, const StreamSync& barriers)
      : board_(board), rank_(rank), names_(std::move(names)), watch_(watch), sync_(barriers) {}
  /// Ends the thread, which until then lets streams of a failed communicator go on.
  ~DeviceReplays();
  DeviceReplays(const DeviceReplays&) = delete;
  DeviceReplays& operator=(const DeviceReplays&) = delete;

  /// Returns an error if the driver cannot capture waits of streams for words. The context is
  /// current.
  Status prepare();
  /// Captures an operation into its stream: the first barrier, this rank's share, which `share`
  /// queues, and the second barrier. Captured operations of one graph follow each other, see
  /// CaptureEnds. An error must end the communicator.
  Status capture(const StreamSync::Operation& operation, const Capture& capture,
                 const std::function<Status()>& share);

  /// Returns the number of the next captured operation, equal on all ranks, from 1.
  std::uint64_t next() const noexcept { return captured_ + 1; }
  /// Returns the number of the first captured operation whose graph, or an executable or a clone of
  /// it, may still exist.
  std::uint64_t released();
  /// Returns the number of captured operations that are kept because their graphs may still exist.
  std::size_t kept() const {
    const std::lock_guard lock(mutex_);
    return operations_.size();
  }
  /// Waits until this rank's streams are in no captured operation, or the communicator has failed.
  void flush() const noexcept;
  /// Waits until this rank's streams are in no captured operation and, if the communicator has
  /// failed, until no replay has begun for 0.1 s, for 10 s at most. Nothing may be captured
  /// afterwards.
  void end() noexcept;

 private:
  /// Flag that the driver sets when a graph and all that was made of it have been destroyed.
  using Gone = std::shared_ptr<std::atomic<bool>>;
  struct Captured {
    std::uint64_t number;
    std::uint64_t timeout_ns;
    Fingerprint call;
    Gone gone;
  };
  /// Operations of a stream on words, in order.
  class Batch;
  /// Waiter of the thread, which checks the device and the peers.
  class WatchWaiter;

  Status probe() const;
  Status count(CUstream stream) const;
  Status enter(const StreamSync::Operation& operation, std::uint32_t number) const;
  Status leave(const StreamSync::Operation& operation, std::uint32_t number) const;
  Status follow(const StreamSync::Operation& operation, const Capture& capture);
  void hold(const Capture& capture);
  void forget_gone();
  void watch_all();
  void look();
  void poll_failures();
  void open(bool all) const noexcept;
  bool inside() const noexcept;
  Status too_late(const Captured& operation) const;
  std::optional<Captured> find(std::uint32_t number);

  SharedState board_;
  const int rank_;
  const std::vector<std::string> names_;
  const DeviceWatch& watch_;
  const StreamSync& sync_;
  bool prepared_ = false;
  Status impossible_;
  gpu::FaultProbe fault_;
  std::atomic<bool> lost_{false}; ///< true: the device is lost and does no queued work any more

  std::uint64_t captured_ = 0;
  Capture last_{};                ///< capture of the last operation
  Gone gone_;                     ///< flag of its graph
  std::uint64_t last_stream_ = 0; ///< id of its stream
  CaptureEnds ends_;              ///< ends of operations, in their captures

  std::thread thread_; ///< watching thread, started by the first operation
  mutable std::mutex mutex_;
  std::deque<Captured> operations_; ///< captured operations that have not been released
  std::atomic<bool> stop_{false};
  Event event_;
  // Words that the thread has seen last, and the time of their last change.
  std::uint32_t seen_replays_ = 0, seen_replaying_ = 0;
  std::uint64_t seen_ns_ = 0;
};

} // namespace whorl
