#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "gpu/mappings.h"
#include "gpu/peer_memory.h"
#include "node/fd_mailbox.h"

namespace whorl {

/// How the ranks of an operation get at memory that has no IPC handle: who has a run of mappings
/// (gpu/mappings.h) that is new to the others sends a descriptor of each piece of its physical
/// memory to all other processes, some at a time, and closes them; who receives them keeps
/// references instead. Letters of an operation that was given up are not taken for those of another
/// one. Nothing here waits. One thread at a time.
class DeviceMappings {
 public:
  /// `mailbox` may be null. Both outlive this.
  DeviceMappings(const Membership& members, FdMailbox* mailbox);

  /// Whether this rank can send to the ranks of all other processes and receive.
  bool possible() const noexcept { return possible_; }
  /// Begins with the new runs of operation `number`, and forgets those of another one.
  void begin(std::uint64_t number);
  void give(const gpu::SharedMemory& run, Result<gpu::PhysicalMemory> physical);
  void expect(int rank, const gpu::SharedMemory& run);
  /// kDone: all has been sent and received. kFailed: it cannot be, see error().
  Progress step();
  const Status& error() const noexcept { return error_; }
  /// Whether something of or for a rank is still missing.
  bool waits_for(int rank) const noexcept;
  /// What has come of a run of `rank`, or was given here; once.
  gpu::PhysicalMemory take(int rank, const gpu::SharedMemory& run);
  /// Forgets everything.
  void clear();
  /// … and what has come.
  void give_up();

 private:
  struct Run {
    int rank;
    gpu::SharedMemory memory;
    gpu::PhysicalMemory physical;
    bool complete() const noexcept { return physical.parts().size() == memory.mappings; }
  };
  struct Header;
  Progress send();
  Status prepare_letter();
  Progress receive();
  Status accept(FdMailbox::Letter& letter);

  const Membership& members_;
  FdMailbox* mailbox_;
  std::vector<int> peers_; ///< ranks in other processes
  bool possible_;
  std::uint64_t number_ = 0;
  std::vector<Run> own_, others_;
  Status error_;
  // The letter under way: of own_[run_], parts from first_ on.
  std::size_t run_ = 0, first_ = 0;
  std::vector<std::byte> body_;
  std::vector<Fd> fds_;    ///< empty: there is none
  std::vector<int> to_;    ///< who has not got it
  FdMailbox::Letter come_; ///< kept for its memory
};

} // namespace whorl
