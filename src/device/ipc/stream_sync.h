#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/comm_error.h"
#include "base/event.h"
#include "base/membership.h"
#include "base/status.h"
#include "device/common/group.h"
#include "device/ipc/shared_state.h"
#include "gpu/fault.h"

namespace whorl {

/// Barriers between the streams of the ranks of a communicator, which may be in different
/// processes. The streams themselves write and wait for words in shared memory (StreamBarrier); no
/// kernel spins and no host takes part:
///
///     leader, rank 0 ── ready₀=e ─ wait ready₁≥e ─▶ kernel ─ done₀=e ─ passed₀=e ──▶
///             rank 1 ── ready₁=e ─ done₁=e ──────────────── wait done₀≥e ─ passed₁=e ──▶
///
/// All ranks wait for "ready", as in a barrier, and none for "done" where each rank has a kernel
/// that gives its own results. Epochs only grow and each word is written in the order of its rank's
/// operations, so streams may be any number of operations ahead.
///
/// A thread watches the queued operations. When the communicator fails, the thread cancels all
/// kernels that have not begun and writes the words itself, until its rank's streams have passed.
/// If the device is lost, for instance by a fault of one of the program's own kernels, the
/// communicator fails; streams there never pass, so no rank waits for them any more.
///
/// Used by one thread at a time.
class StreamSync {
 public:
  /// Continues at the epoch of the rank's words. `names` are those of the ranks, for errors;
  /// `watch` outlives this object.
  StreamSync(const SharedState& board, int rank, std::vector<std::string> names,
             const DeviceWatch& watch)
      : board_(board),
        rank_(rank),
        names_(std::move(names)),
        watch_(watch),
        queued_(board_.barrier(rank).queued.load(std::memory_order_relaxed)) {}
  /// Waits until this rank's streams have passed all operations and no other rank accesses this
  /// rank's memory in one. The watching thread ends the wait by the communicator's timeout if need
  /// be, and at once if the device is lost.
  ~StreamSync();
  StreamSync(const StreamSync&) = delete;
  StreamSync& operator=(const StreamSync&) = delete;

  /// Registers the words with the device. To be called once, before all others; the device's
  /// context is current in all calls.
  Status prepare();
  bool prepared() const noexcept { return registered_; }

  /// Ranks whose streams do the work of an operation.
  enum class Work {
    kNone,   ///< none: the operation is a barrier
    kLeader, ///< the leader, for all
    /// Each rank, for itself. Such kernels wait for each other by themselves, with a timeout of
    /// their own.
    kEach
  };
  /// Operation of this rank.
  struct Operation {
    CUstream stream = nullptr;
    std::uint64_t stream_id = 0; ///< id of the stream, never reused
    Work work = Work::kNone;
    std::uint64_t timeout_ns = 0;
    Fingerprint call; ///< call, for errors
  };
  /// Queues the barrier before this rank's share, the share itself, if any, by `share`, and the
  /// barrier after it. An error ends the communicator; that of a share does so before the streams
  /// of others pass.
  Status pass(const Operation& operation, const std::function<Status()>& share);

  /// Waits until this rank's streams have passed all operations, or the communicator has failed.
  void flush() const noexcept;

  /// Returns the number of the next operation.
  std::uint64_t next() const noexcept { return queued_ + 1; }
  /// Returns the number of the last operation that this rank's streams have passed.
  std::uint64_t passed() const noexcept;
  gpu::StopWords* stop_words() const noexcept { return on_device(&board_.stop_words()); }
  /// Returns the address on the device of a word among the board's words().
  template <class T>
  T* on_device(T* word) const noexcept {
    const auto at = reinterpret_cast<const std::byte*>(word) - board_.words().data();
    return reinterpret_cast<T*>(words_ + static_cast<CUdeviceptr>(at));
  }
  /// Keeps kernels of all ranks from beginning. To be called after DeviceWatch::fail(), so that a
  /// rank whose stream goes on because of it finds the error.
  void cancel() noexcept { board_.stop_words().set(); }

 private:
  using Word = std::atomic<std::uint32_t> SharedState::StreamBarrier::*;
  struct Watched {
    std::uint64_t epoch;
    std::uint64_t timeout_ns;
    Work work;
    Fingerprint call;
  };

  /// Operations of a stream on words, in order.
  class Batch;
  /// Waiter of the thread, which checks the device and the peers.
  class WatchWaiter;
  Status enter(const Operation& operation);
  Status leave(const Operation& operation);
  bool has_come(Word word, int rank, std::uint64_t epoch) const noexcept;
  bool all_have_come(Word word, std::uint64_t epoch) const noexcept;
  void watch_all();
  void watch(const Watched& operation);
  void open(std::uint64_t epoch) noexcept;
  void open_until_passed(std::uint64_t epoch) noexcept;
  void look_at_device(); ///< checks whether the device is lost; called by the watching thread
  Status too_late(const Watched& operation) const;

  SharedState board_;
  const int rank_;
  const std::vector<std::string> names_;
  const DeviceWatch& watch_;
  gpu::FaultProbe probe_;
  std::atomic<bool> lost_{false}; ///< true: the device is lost and does no queued work any more
  bool registered_ = false;
  CUcontext context_ = nullptr;
  CUdeviceptr words_ = 0; ///< address of the words on the device
  std::uint64_t queued_;
  std::uint64_t last_stream_ = 0; ///< id of the stream of the last operation

  /// Time at which kernels that had begun before the failure have ended; 0: no failure. Of the
  /// watching thread.
  std::uint64_t kernels_end_ns_ = 0;

  std::thread thread_; ///< watching thread, started by the first operation
  std::mutex mutex_;
  std::deque<Watched> watched_;
  bool stop_ = false;
  Event event_;
};

} // namespace whorl
