#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "algorithms/shape.h"
#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

class FdMailbox;

/// How the schedules that devices carry out are chosen. Of ranks of one process, that of the first
/// counts.
struct DeviceRules {
  Shape shape;            ///< of the communicator
  std::string algorithms; ///< as in WHORL_ALGO
  bool verify = false;    ///< prove each schedule before its first use
};

/// What the communicator lends to those that wait in its name. Any thread.
struct DeviceWatch {
  const Verdict* verdict = nullptr;
  std::function<void()> look_at_peers;
  std::function<void(Status)> fail; ///< ends the communicator on all ranks
};

/// Why an operation on a stream that is being captured is refused.
inline constexpr std::string_view kNotForGraphs =
    "the stream is being captured into a graph, but this operation is carried out by the host, or "
    "by more than a kernel, which no graph can repeat, or it is the first one between the devices "
    "of its communicator, which allocates memory; issue it outside the capture";

/// What became of an operation whose ranks have met.
enum class Met {
  kQueued,  ///< it is in the streams
  kHost,    ///< the host has to carry it out
  kRefused, ///< all ranks have it captured into a graph, which cannot be; see refusal()
};

/// The ranks of a communicator that may all be on one device, in one process or in several
/// processes of a host (device/ipc/group.h). In one process the operation of all of them is one
/// kernel, which reads every input once and writes every output once.
///
///     stream of rank 0 ──●───────────────────────●──▶
///     stream of rank 1 ──┼──●────────────────────●──▶       ● event
///                        ▼  ▼                    ▲
///     of the last one  ──wait──▶ kernel ─────────●──▶
///
/// Ranks meet in the host: who posts last queues the kernel for all. So a call waits until the
/// other ranks have made theirs; one thread must issue the calls of several ranks in a group. Where
/// the ranks of a process are on several devices that reach each other, kernels that interpret
/// schedules do it (device_schedule.h).
///
/// A communicator that has such a group posts all its collectives here. If one of them is not on
/// the device on every rank, the host carries it out.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  /// An error if rank `rank` cannot make such a call: its stream is being captured into a graph,
  /// but the operation is not one kernel. Before anything is posted, so that nothing has happened.
  virtual Status check(int rank, const Request& request, Stream* stream) const = 0;
  /// Says what rank `rank` does next; `stream` is that of a device, or null if the operation is one
  /// for the host. Returns its number. `timeout_ns`: kernels that wait for each other give up after
  /// so long without progress.
  virtual std::uint64_t post(int rank, const Request& request, Stream* stream,
                             std::uint64_t timeout_ns) = 0;
  /// Does what can be done without waiting for the operations that have been posted. kDone if there
  /// is nothing left to wait for; a group that waits in meet() says so at once.
  virtual Progress advance(std::uint64_t timeout_ns) {
    static_cast<void>(timeout_ns);
    return Progress::kDone;
  }
  /// Whether count() may stand for post() and meet() of a lone operation for the host.
  virtual bool counts() const noexcept { return false; }
  virtual void count() noexcept {}
  /// Waits until this rank's streams have passed all operations that other processes take part in,
  /// or the communicator has failed.
  virtual void flush() {}
  /// Waits until all ranks have posted operation `number`. An error is every rank's, and ends the
  /// communicator.
  virtual Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                           const Verdict& verdict, Napper& napper) = 0;
  /// Why the last meet() has said kRefused. Nothing has happened then.
  virtual Status refusal() const {
    return Status::error(Code::kInvalidUsage, std::string(kNotForGraphs));
  }
  /// The communicator has failed: kernels that wait are to leave, now and later. Any thread.
  virtual void stop() noexcept {}
  /// Why a kernel gave up, if one did. Any thread.
  virtual Status failure() { return {}; }
};

/// The group of a communicator whose ranks are all in this process, or all on this host and have a
/// `board` in common (Transport::board(), `mailbox` is Transport::mailbox()); null if they are not,
/// or there is no driver. To be called by every rank. All arguments but `rules` outlive the group.
std::shared_ptr<DeviceGroup> join_device_group(const Membership& membership,
                                               std::span<std::byte> board, FdMailbox* mailbox,
                                               const DeviceWatch& watch, const DeviceRules& rules);

} // namespace whorl
