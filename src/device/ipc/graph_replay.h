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
#include "device/common/group.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"
#include "gpu/fault.h"

namespace whorl {

/// Operations of a communicator that graphs repeat, of ranks whose streams wait for each other by
/// words in shared memory. A graph repeats fixed values, so these are not the words of DeviceGates,
/// which grow, but one for each pair of ranks and each of two barriers (DeviceBoard::Mail). Who has
/// waited for a word sets it to 0 again; e is the number of the captured operation:
///
///     rank 0 ── ready₁₀=e ─ wait ready₀₁=e ─ ready₀₁=0 ─▶ kernel ─┐
///            ┌────────────────────────────────────────────────────┘
///            └─ done₁₀=e ─ wait done₀₁=e ─ done₀₁=0 ──▶
///
/// Ranks without a share of the work neither wait for "ready" nor say "done". No rank writes a word
/// again before it has been set to 0:
///   - readyₚᵣ is for a rank p with a share, and r goes on to its next operation only when it has
///     got doneᵣₚ, which p writes after it has set readyₚᵣ to 0;
///   - doneₚᵣ is from a rank r with a share, and r writes it only when it has got readyᵣₚ of that
///     operation, which p writes after it has left the one before and has set doneₚᵣ to 0.
///
/// Both hold whichever ranks have shares of the two operations. Ranks that replay different
/// operations at the same time wait for different numbers, and get an error.
///
/// A graph is launched without this library, so a thread looks at the words from the first capture
/// on: each rank counts what it has begun, by a kernel, and says in which operation it is. When the
/// communicator fails, the thread writes the words that this rank's streams wait for, as often as
/// it takes; kernels do nothing then.
///
/// Calls by one thread at a time.
class DeviceReplays {
 public:
  /// `gates` are prepared before the first call, and may end before this does. `watch` outlives it.
  DeviceReplays(const DeviceBoard& board, int rank, std::vector<std::string> names,
                const DeviceWatch& watch, const DeviceGates& gates)
      : board_(board), rank_(rank), names_(std::move(names)), watch_(watch), gates_(gates) {}
  /// Lets streams of a communicator that has failed go on until then.
  ~DeviceReplays();
  DeviceReplays(const DeviceReplays&) = delete;
  DeviceReplays& operator=(const DeviceReplays&) = delete;

  /// Why the driver cannot capture what streams wait for, if so. The context is current.
  Status prepare();
  /// Puts this rank's share, which `share` queues, into the stream, which is being captured,
  /// between what comes before and after it. Captured operations of one graph follow each other,
  /// in whichever streams they are, unless another capture has come between them. An error ends the
  /// communicator.
  Status capture(const DeviceGates::Operation& operation, const Capture& capture,
                 const std::function<Status()>& share);

  /// The number of the next captured operation, alike on all ranks, from 1.
  std::uint64_t next() const noexcept { return captured_ + 1; }
  /// The first captured operation whose graph, or what was made of it, may be there yet.
  std::uint64_t released();
  /// Waits until this rank's streams are in none of these operations.
  void flush() const noexcept;
  /// The same; of a communicator that has failed, also until nothing follows any more, for a while.
  /// From now on nothing is captured.
  void end() noexcept;

 private:
  /// Until a graph and all that has been made of it are gone. Set by the driver.
  using Gone = std::shared_ptr<std::atomic<bool>>;
  struct Captured {
    std::uint64_t number;
    std::uint64_t timeout_ns;
    int workers;
    Fingerprint call;
    Gone gone;
  };
  /// Operations of a stream on words, in order.
  class Batch;
  /// Looks after the device and the peers while the thread waits.
  class WatchNapper;

  Status probe() const;
  Status count(CUstream stream) const;
  Status enter(const DeviceGates::Operation& operation, std::uint32_t number) const;
  Status leave(const DeviceGates::Operation& operation, std::uint32_t number) const;
  Status follow(const DeviceGates::Operation& operation, const Capture& capture);
  void hold(const Capture& capture);
  void watch_all();
  void look();
  void look_around();
  void open(bool all) const noexcept;
  bool inside() const noexcept;
  Status too_late(const Captured& operation) const;
  std::optional<Captured> find(std::uint32_t number);

  DeviceBoard board_;
  const int rank_;
  const std::vector<std::string> names_;
  const DeviceWatch& watch_;
  const DeviceGates& gates_;
  bool prepared_ = false;
  Status impossible_;
  CUcontext context_ = nullptr;
  gpu::FaultProbe fault_;
  std::atomic<bool> lost_{false}; ///< the device: nothing that is queued is done any more

  std::uint64_t captured_ = 0;
  Capture last_{};                    ///< that of the last operation
  Gone gone_;                         ///< its graph
  const void* last_stream_ = nullptr; ///< its id
  CUevent order_ = nullptr;           ///< the end of the last operation, in its capture

  std::thread thread_; ///< from the first operation on
  mutable std::mutex mutex_;
  std::deque<Captured> operations_; ///< that have not been released
  std::atomic<bool> stop_{false};
  Event event_;
  // What the thread has seen last, and when it came to be so.
  std::uint32_t seen_replays_ = 0, seen_replaying_ = 0;
  std::uint64_t seen_ns_ = 0;
};

} // namespace whorl
