#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "gpu/mappings.h"
#include "gpu/peer_memory.h"
#include "node/fd_channel.h"

namespace whorl {

// Memory that has no IPC handle goes from its rank to the leader: the rank sends a descriptor of
// each piece of physical memory of a run of mappings (gpu/mappings.h), some at a time, and closes
// them; the leader keeps references to the memory instead. Messages carry the operation's number,
// so those of an abandoned operation are ignored. No function waits. Used by one thread at a time.

/// Sender of one rank's runs to the leader, in one operation after another.
class RunSender {
 public:
  /// Makes the sender of rank `rank`. `fd_channel` may be null, and outlives this object.
  RunSender(int rank, FdChannel* fd_channel) : rank_(rank), fd_channel_(fd_channel) {}

  /// Returns whether the leader can receive.
  bool possible() const noexcept { return fd_channel_ != nullptr && fd_channel_->sends(); }
  /// Forgets the runs of the last operation.
  void begin(std::uint64_t number);
  void add(const gpu::SharedMemory& run, std::shared_ptr<const gpu::PhysicalMemory> physical) {
    runs_.push_back({run, std::move(physical)});
  }
  /// Sends as far as possible. kDone: all has been sent. kFailed: see error().
  Progress step();
  const Status& error() const noexcept { return error_; }

 private:
  struct Run {
    gpu::SharedMemory memory;
    std::shared_ptr<const gpu::PhysicalMemory> physical;
  };
  Status prepare_message();

  const int rank_;
  FdChannel* fd_channel_;
  std::uint64_t number_ = 0;
  std::vector<Run> runs_;
  Status error_;
  // The message being sent, with parts of runs_[run_] from first_ on.
  std::size_t run_ = 0, first_ = 0;
  std::vector<std::byte> body_;
  std::vector<Fd> fds_; ///< descriptors of the message; empty: there is none
};

/// Receiver of the runs of other ranks; the leader has it.
class RunReceiver {
 public:
  /// Makes the receiver; `fd_channel` may be null, and both arguments outlive this object.
  RunReceiver(const Membership& members, FdChannel* fd_channel)
      : members_(members), fd_channel_(fd_channel) {}

  /// Begins operation `number`, and forgets what the last one expected.
  void begin(std::uint64_t number);
  void expect(int rank, const gpu::SharedMemory& run);
  /// Receives as far as possible. kDone: all has been received. kFailed: see error().
  Progress step();
  const Status& error() const noexcept { return error_; }
  /// Returns whether something from a rank is still missing.
  bool waits_for(int rank) const noexcept;
  /// Moves out the physical memory of a run that `rank` has sent; empty the second time.
  gpu::PhysicalMemory take(int rank, const gpu::SharedMemory& run);
  /// Forgets everything, and discards messages that have arrived.
  void abandon();

 private:
  struct Run {
    int rank;
    gpu::SharedMemory memory;
    gpu::PhysicalMemory physical;
    bool complete() const noexcept { return physical.parts().size() == memory.mappings; }
  };
  Status accept(FdChannel::Message& message);

  const Membership& members_;
  FdChannel* fd_channel_;
  std::uint64_t number_ = 0;
  std::vector<Run> runs_;
  Status error_;
  FdChannel::Message come_; ///< last received message, kept for its memory
};

} // namespace whorl
