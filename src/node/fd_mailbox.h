#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/system.h"
#include "base/wait.h"

namespace whorl {

/// A pair of sockets for datagrams: what is written to `outbox` is read from `inbox`. Invalid where
/// the process has no descriptors left.
struct FdMailboxEnds {
  Fd inbox, outbox;
  static FdMailboxEnds make() noexcept;
};

/// Where a rank takes file descriptors from others of its host at any time, and gives them some.
/// Each rank reads from a socket of its own, which nobody else can find; the others hold the end to
/// write to. Letters arrive whole, and in order those of one sender. One thread at a time.
class FdMailbox {
 public:
  static constexpr std::size_t kMostBytes = 2048;
  static constexpr std::size_t kMostFds = 64; ///< below what the kernel passes at once

  /// A letter of a peer, which may have put anything into it.
  struct Letter {
    std::array<std::byte, kMostBytes> bytes;
    std::size_t size = 0;
    std::vector<Fd> fds;
    bool cut = false; ///< descriptors are missing: this process may not open as many
    std::span<const std::byte> body() const noexcept { return std::span(bytes).first(size); }
  };

  FdMailbox() = default;
  /// `outboxes` by rank; invalid for those that get nothing.
  FdMailbox(Fd inbox, std::vector<Fd> outboxes) noexcept
      : inbox_(std::move(inbox)), outboxes_(std::move(outboxes)) {}

  bool receives() const noexcept { return inbox_.valid(); }
  bool reaches(int rank) const noexcept;
  /// kIdle: no room, try again; kFailed: the rank has no box, or has gone. At most kMostBytes and
  /// kMostFds, which stay this side's.
  Progress send(int rank, std::span<const std::byte> body, std::span<const Fd> fds) noexcept;
  /// kDone: `letter` is the next one. kIdle: there is none. kFailed: this rank has no box.
  Progress receive(Letter& letter);

 private:
  Fd inbox_;
  std::vector<Fd> outboxes_;
};

} // namespace whorl
