#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/system.h"
#include "base/wait.h"

namespace whorl {

/// A pair of sockets for datagrams: a datagram written to `outbox` is read from `inbox`. Invalid if
/// the process has no descriptors left.
struct FdChannelEnds {
  Fd inbox, outbox;
  static FdChannelEnds make() noexcept;
};

/// Channel on which a rank receives file descriptors from other ranks of its host at any time, and
/// sends some to them. Each rank reads from a socket of its own, which has no name; the other ranks
/// hold the end to write to. Messages arrive whole, and the messages of one sender in order. Used
/// by one thread at a time.
class FdChannel {
 public:
  static constexpr std::size_t kMaxBytes = 2048;
  static constexpr std::size_t kMaxFds = 64; ///< less than the 253 that the kernel passes at once

  /// A message of a peer. Untrusted.
  struct Message {
    std::array<std::byte, kMaxBytes> bytes;
    std::size_t size = 0;
    std::vector<Fd> fds;
    bool cut = false; ///< whether descriptors are missing, because this process may not open more
    std::span<const std::byte> body() const noexcept { return std::span(bytes).first(size); }
  };

  FdChannel() = default;
  /// Makes a channel from this rank's inbox and the outboxes of all ranks, by rank; an outbox is
  /// invalid if this rank sends nothing there.
  FdChannel(Fd inbox, std::vector<Fd> outboxes) noexcept
      : inbox_(std::move(inbox)), outboxes_(std::move(outboxes)) {}

  bool receives() const noexcept { return inbox_.valid(); }
  bool reaches(int rank) const noexcept;
  /// Sends a message of at most kMaxBytes and kMaxFds descriptors, which stay open here. kIdle: no
  /// room, try again. kFailed: the rank has no outbox, or has gone.
  Progress send(int rank, std::span<const std::byte> body, std::span<const Fd> fds) noexcept;
  /// Receives a message. kDone: `message` is the next one. kIdle: no message has arrived. kFailed:
  /// this rank has no inbox.
  Progress receive(Message& message);

 private:
  Fd inbox_;
  std::vector<Fd> outboxes_;
};

} // namespace whorl
