#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "gpu/mappings.h"
#include "gpu/peer_memory.h"
#include "node/fd_channel.h"

namespace whorl {

/// Exchange of memory that has no IPC handle between the ranks of an operation: a rank that has a
/// run of mappings (gpu/mappings.h) that is new to the others sends a descriptor of each piece of
/// its physical memory to all other processes, some at a time, and closes them; receivers keep
/// references to the memory instead. Messages carry the operation's number, so those of an
/// abandoned operation are ignored. No function waits. Used by one thread at a time.
class DeviceMappings {
 public:
  /// Makes the exchange of one rank. `fd_channel` may be null. Both arguments outlive this object.
  DeviceMappings(const Membership& members, FdChannel* fd_channel);

  /// Returns whether this rank can receive, and send to the ranks of all other processes.
  bool possible() const noexcept { return possible_; }
  /// Begins the exchange of operation `number`, and forgets that of the last one.
  void begin(std::uint64_t number);
  void give(const gpu::SharedMemory& run, Result<gpu::PhysicalMemory> physical);
  void expect(int rank, const gpu::SharedMemory& run);
  /// Sends and receives as far as possible. kDone: all has been sent and received. kFailed: see
  /// error().
  Progress step();
  const Status& error() const noexcept { return error_; }
  /// Returns whether something to or from a rank is still missing.
  bool waits_for(int rank) const noexcept;
  /// Moves out the physical memory of a run that `rank` has sent, or that was given here; empty the
  /// second time.
  gpu::PhysicalMemory take(int rank, const gpu::SharedMemory& run);
  /// Forgets everything.
  void clear();
  /// Forgets everything, and discards messages that have arrived.
  void abandon();

 private:
  struct Run {
    int rank;
    gpu::SharedMemory memory;
    gpu::PhysicalMemory physical;
    bool complete() const noexcept { return physical.parts().size() == memory.mappings; }
  };
  struct Header;
  Progress send();
  Status prepare_message();
  Progress receive();
  Status accept(FdChannel::Message& message);

  const Membership& members_;
  FdChannel* fd_channel_;
  std::vector<int> peers_; ///< ranks in other processes
  bool possible_;
  std::uint64_t number_ = 0;
  std::vector<Run> own_, others_;
  Status error_;
  // The message being sent, with parts of own_[run_] from first_ on.
  std::size_t run_ = 0, first_ = 0;
  std::vector<std::byte> body_;
  std::vector<Fd> fds_;     ///< descriptors of the message; empty: there is none
  std::vector<int> to_;     ///< ranks to which the message has yet to be sent
  FdChannel::Message come_; ///< last received message, kept for its memory
};

} // namespace whorl
