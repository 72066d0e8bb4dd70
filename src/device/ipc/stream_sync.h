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

#include "base/event.h"
#include "base/status.h"
#include "base/verdict.h"
#include "device/common/group.h"
#include "device/ipc/shared_state.h"
#include "gpu/fault.h"

namespace whorl {

/// Keeps the streams of the ranks of a communicator in step, which may be in different processes.
/// Streams write and wait for words in shared memory by themselves (Gate), no kernel spins and no
/// host takes part:
///
///     rank 0 ── ready₀=e ─ wait ready₁≥e ─▶ kernel ─ done₀=e ─ wait done₁≥e ─ passed₀=e ──▶
///     rank 1 ── ready₁=e ─ wait ready₀≥e ─▶ kernel ─ done₁=e ─ wait done₀≥e ─ passed₁=e ──▶
///
/// A rank without a share of the work waits for "done" alone, and nobody waits for it where each
/// rank's share gives its own results. Epochs only grow and each word is
/// written in the order of its rank's operations, so streams may be any number of operations ahead.
///
/// A thread watches what is queued. When the communicator fails, it cancels all kernels that have
/// not begun and writes the words itself, until its rank's streams have passed. Where the device is
/// lost, by a fault of one of the program's own kernels, say, the communicator fails: streams do
/// not pass there, so nobody waits for them any more.
///
/// Calls by one thread at a time.
class DeviceGates {
 public:
  /// Goes on where the rank's words are. `names` of the ranks, for errors; `watch` outlives this.
  DeviceGates(const DeviceBoard& board, int rank, std::vector<std::string> names,
              const DeviceWatch& watch)
      : board_(board),
        rank_(rank),
        names_(std::move(names)),
        watch_(watch),
        queued_(board_.gate(rank).queued.load(std::memory_order_relaxed)) {}
  /// Waits until this rank's streams have passed all operations and no other rank touches this
  /// rank's memory in one; that ends, with the communicator's timeout if need be, and at once where
  /// the device is lost.
  ~DeviceGates();
  DeviceGates(const DeviceGates&) = delete;
  DeviceGates& operator=(const DeviceGates&) = delete;

  /// Makes the device see the words. Once before all others; its context is current in all calls.
  Status prepare();
  bool prepared() const noexcept { return registered_; }

  /// One operation of this rank. The first `workers` ranks have shares.
  struct Operation {
    CUstream stream = nullptr;
    const void* stream_id = nullptr; ///< never that of another stream
    int workers = 0;
    /// Each rank's share gives its own results: its stream does not wait for the shares of others.
    /// Shares wait for each other by themselves, and have a limit for that.
    bool apart = false;
    std::uint64_t timeout_ns = 0;
    Fingerprint call; ///< for errors
  };
  /// Queues this rank's share, which `share` puts into the stream, between what has to come before
  /// and after it. An error ends the communicator, before the streams of others pass.
  Status pass(const Operation& operation, const std::function<Status()>& share);

  /// Waits until this rank's streams have passed all operations, or the communicator has failed.
  void flush() const noexcept;

  /// The number of the next operation, and of the last that has been passed.
  std::uint64_t next() const noexcept { return queued_ + 1; }
  std::uint64_t passed() const noexcept;
  const std::uint32_t* cancelled() const noexcept {
    return reinterpret_cast<const std::uint32_t*>(on_device(&board_.cancelled()));
  }
  /// Where the device has something that lies among the board's words().
  template <class T>
  T* on_device(T* word) const noexcept {
    const auto at = reinterpret_cast<const std::byte*>(word) - board_.words().data();
    return reinterpret_cast<T*>(words_ + static_cast<CUdeviceptr>(at));
  }
  /// Keeps kernels of all ranks from beginning. After DeviceWatch::fail(): whose stream goes on
  /// because of it finds the error.
  void cancel() noexcept { board_.cancelled().store(1, std::memory_order_seq_cst); }

 private:
  using Word = std::atomic<std::uint32_t> DeviceBoard::Gate::*;
  struct Watched {
    std::uint64_t epoch;
    std::uint64_t timeout_ns;
    int workers;
    bool apart;
    Fingerprint call;
  };

  /// Operations of a stream on words, in order.
  class Batch;
  /// Looks after the device and the peers while the thread waits.
  class WatchNapper;
  Status enter(const Operation& operation);
  Status leave(const Operation& operation);
  bool has_come(Word word, int rank, std::uint64_t epoch) const noexcept;
  bool all_have_come(Word word, std::uint64_t epoch) const noexcept;
  void watch_all();
  void watch(const Watched& operation);
  void open(std::uint64_t epoch) noexcept;
  void open_until_passed(std::uint64_t epoch) noexcept;
  void look_at_device(); ///< by the thread that watches
  Status too_late(const Watched& operation) const;

  DeviceBoard board_;
  const int rank_;
  const std::vector<std::string> names_;
  const DeviceWatch& watch_;
  gpu::FaultProbe probe_;
  std::atomic<bool> lost_{false}; ///< the device: nothing that is queued is done any more
  bool registered_ = false;
  CUcontext context_ = nullptr;
  CUdeviceptr words_ = 0; ///< on the device
  std::uint64_t queued_;
  const void* last_stream_ = nullptr;

  std::thread thread_; ///< from the first operation on
  std::mutex mutex_;
  std::deque<Watched> watched_;
  bool stop_ = false;
  Event event_;
};

} // namespace whorl
