#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "algorithms/shape.h"
#include "base/status.h"
#include "base/wait.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Rules for the choice of the schedules that devices carry out. The ranks of one process use the
/// rules of their first rank.
struct DeviceRules {
  Shape shape;            ///< shape of the communicator
  std::string algorithms; ///< value of WHORL_ALGO
  bool verify = false;    ///< whether each schedule is proved before its first use
};

/// The communicator as waits of device operations see it; used by any thread.
struct DeviceWatch {
  const CommError* comm_error = nullptr;
  std::function<void()> look_at_peers;
  std::function<void(Status)> fail; ///< ends the communicator on all ranks
};

/// Reason for which an operation on a stream that is being captured is refused.
inline constexpr std::string_view kNotForGraphs =
    "the stream is being captured into a graph, but this operation is carried out by the host, or "
    "by more than a kernel, which no graph can repeat, or it is the first one between the devices "
    "of its communicator, which allocates memory, or its streams are cudaStreamPerThread of "
    "different threads; issue it outside the capture";

/// Outcome of an operation for which all ranks have met.
enum class Met {
  kQueued,  ///< the operation is in the streams
  kHost,    ///< the host has to carry out the operation
  kRefused, ///< the operation cannot be captured, but all ranks capture it; see refusal()
};

/// Group of a communicator's ranks that carries out operations with kernels: the ranks of one
/// process (device/local_group.h) or of several processes of a host (device/ipc/group.h). If all
/// ranks are in one process and on one device, an operation is one kernel, which reads every input
/// once and writes every output once.
///
///     stream of rank 0 ──●───────────────────────●──▶
///     stream of rank 1 ──┼──●────────────────────●──▶       ● event
///                        ▼  ▼                    ▲
///     of the last rank ──wait──▶ kernel ─────────●──▶
///
/// Ranks meet in the host: the rank that posts last queues the kernel for all. So a call waits
/// until the other ranks have made their calls; one thread must issue the calls of several ranks in
/// a group. Where the ranks of a process are on several devices that reach each other, kernels that
/// exchange messages carry out the operation (device/kernel/schedule_local.h).
///
/// A communicator that has such a group posts all its collectives here. The host carries out each
/// collective that is not on the device on every rank.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  /// Returns an error if rank `rank` cannot make such a call, because its stream is being captured
  /// into a graph, but the operation is not one kernel. Called before anything is posted, so that
  /// an error has no effect on other ranks.
  virtual Status check(int rank, const Request& request, Stream* stream) const = 0;
  /// Posts the next operation of rank `rank` and returns its number; `stream` is a stream of a
  /// device, or null if the operation is one for the host. `timeout_ns` is the time without
  /// progress after which kernels that wait for each other give up.
  virtual std::uint64_t post(int rank, const Request& request, Stream* stream,
                             std::uint64_t timeout_ns) = 0;
  /// Advances the operations that have been posted as far as possible without waiting. Returns
  /// kDone if nothing is left to wait for; always for a group that waits in meet().
  virtual Progress advance(std::uint64_t timeout_ns) {
    static_cast<void>(timeout_ns);
    return Progress::kDone;
  }
  /// Returns whether this rank may number a lone operation for the host by count(), without post()
  /// and meet().
  virtual bool counts() const noexcept { return false; }
  /// Numbers a lone operation for the host.
  virtual void count() noexcept {}
  /// Waits until this rank's streams have passed all operations that other processes take part in,
  /// or the communicator has failed.
  virtual void flush() {}
  /// Waits until all ranks have posted operation `number`. An error is every rank's, and ends the
  /// communicator.
  virtual Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                           const CommError& comm_error, Waiter& waiter) = 0;
  /// Returns the reason for which the last meet() has returned kRefused, that is, done nothing.
  virtual Status refusal() const {
    return Status::error(Code::kInvalidUsage, std::string(kNotForGraphs));
  }
  /// Makes kernels that wait, now or later, leave, because the communicator has failed. May be
  /// called by any thread.
  virtual void stop() noexcept {}
  /// Returns the error with which a kernel gave up, if any did. May be called by any thread.
  virtual Status failure() { return {}; }
};

} // namespace whorl
