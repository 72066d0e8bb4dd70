#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "base/wait.h"

namespace whorl {

// A message with file descriptors over a connected, nonblocking unix stream socket:
//
//   magic (4) | bytes (4) | descriptors (4) | body | one byte for each descriptor
//
// The kernel passes at most 253 descriptors at once, so they follow the body in several batches.

inline constexpr std::size_t kMaxMessageBytes = 65536;
inline constexpr std::size_t kMaxMessageFds = 8192;

/// Sender of one message. The descriptors are borrowed until step() returns kDone, and stay open.
class FdMessageSender {
 public:
  FdMessageSender() = default;
  FdMessageSender(std::span<const std::byte> body, std::vector<int> fds);
  /// Sends as much as possible. kIdle: the socket, or the kernel's table of descriptors in flight,
  /// is full.
  Progress step(int socket) noexcept;
  int error() const noexcept { return error_; } ///< returns −errno after kFailed
  /// Returns whether a part has been sent.
  bool begun() const noexcept { return bytes_sent_ > 0; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<int> fds_;
  std::size_t bytes_sent_ = 0;
  std::size_t fds_sent_ = 0; ///< number of descriptors
  int error_ = 0;
};

/// Receiver of one message from an untrusted peer.
class FdMessageReceiver {
 public:
  /// Receives as much as possible. After kFailed, error() is −errno, or 0 if the peer closed the
  /// connection.
  Progress step(int socket);
  int error() const noexcept { return error_; }
  std::span<const std::byte> body() const noexcept { return body_; }
  std::vector<Fd>& fds() noexcept { return fds_; }

 private:
  Progress fail(int error) noexcept;

  std::array<std::byte, 12> header_{};
  std::vector<std::byte> body_;
  std::vector<Fd> fds_;
  std::size_t received_ = 0; ///< bytes of header and body, then one byte for each descriptor
  std::size_t wanted_fds_ = 0;
  int error_ = 0;
};

} // namespace whorl
