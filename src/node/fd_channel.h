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

/// Channel on which one rank receives file descriptors from other ranks of its host at any time.
/// The rank reads from a socket that has no name; the other ranks hold the end to write to.
/// Messages arrive whole, and the messages of one sender in order. Used by one thread at a time.
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
  /// Makes a channel from the inbox, on the rank that receives, or an outbox, on others.
  FdChannel(Fd inbox, Fd outbox) noexcept : inbox_(std::move(inbox)), outbox_(std::move(outbox)) {}

  bool receives() const noexcept { return inbox_.valid(); }
  bool sends() const noexcept { return outbox_.valid(); }
  /// Sends a message of at most kMaxBytes and kMaxFds descriptors, which stay open here. kIdle: no
  /// room, try again. kFailed: there is no outbox, or the receiver has gone.
  Progress send(std::span<const std::byte> body, std::span<const Fd> fds) noexcept;
  /// Receives a message. kDone: `message` is the next one, without its bytes if these are more than
  /// send() allows. kIdle: no message has arrived. kFailed: this rank has no inbox.
  Progress receive(Message& message);

 private:
  Fd inbox_, outbox_;
};

} // namespace whorl
