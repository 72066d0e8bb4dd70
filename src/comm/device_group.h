#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/wait.h"
#include "comm/request.h"
#include "comm/stream.h"
#include "transports/transport.h"

namespace whorl {

/// The ranks of a communicator that are all in one process, on one device: the operation of all of
/// them is one kernel, which reads every input once and writes every output once.
///
///     stream of rank 0 ──●───────────────────────●──▶
///     stream of rank 1 ──┼──●────────────────────●──▶       ● event
///                        ▼  ▼                    ▲
///     of the last one  ──wait──▶ kernel ─────────●──▶
///
/// Ranks meet in the host: who posts last queues the kernel for all. So a call waits until the
/// other ranks have made theirs; one thread must issue the calls of several ranks in a group.
///
/// A communicator that has such a group posts all its collectives here. If one of them is not on
/// the device on every rank, the host carries it out.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  /// Says what rank `rank` does next; `stream` is that of a device, or null if the operation is one
  /// for the host. Returns its number.
  virtual std::uint64_t post(int rank, const Request& request, Stream* stream) = 0;
  /// Waits until all ranks have posted operation `number`. True: it is in the streams. False: the
  /// host has to carry it out. An error is every rank's.
  virtual Result<bool> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                            const Verdict& verdict, Napper& napper) = 0;
};

/// The group of a communicator whose ranks are all in this process; null if they are not, or there
/// is no driver. To be called by every rank.
std::shared_ptr<DeviceGroup> join_device_group(const Membership& membership);

} // namespace whorl
