#pragma once

#include <sys/socket.h>

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/system.h"
#include "net/sealed_stream.h"

namespace whorl {

/// Connected, nonblocking stream socket after its handshake, which encrypts what goes through it if
/// the two sides have agreed on that. One thread may send while another receives.
class StreamSocket {
 public:
  StreamSocket() = default;
  /// Takes a socket whose bytes go as they are.
  explicit StreamSocket(Fd fd) noexcept : fd_(std::move(fd)) {}
  StreamSocket(Fd fd, std::unique_ptr<SealedStream> sealed) noexcept
      : fd_(std::move(fd)), sealed_(std::move(sealed)) {}

  int get() const noexcept { return fd_.get(); }
  bool valid() const noexcept { return fd_.valid(); }
  bool encrypts() const noexcept { return sealed_ != nullptr; }
  void reset() noexcept {
    fd_.reset();
    sealed_.reset();
  }
  /// Gives the socket away; one that encrypts stays, and the result is invalid.
  Fd take() noexcept { return encrypts() ? Fd() : std::move(fd_); }

  /// Sends bytes of the parts without waiting. Returns their number or −errno. What was not sent
  /// must be the beginning of the next call, unchanged.
  ::ssize_t send(std::span<const iovec> parts) noexcept {
    return sealed_ == nullptr ? send_plain(parts) : sealed_->out.send(fd_.get(), parts);
  }
  ::ssize_t send(std::span<const std::byte> bytes) noexcept {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return send({&part, 1});
  }
  /// Returns whether the peer has a part of something that send() has not counted yet, so that
  /// nothing else may be sent.
  bool sending() const noexcept { return sealed_ != nullptr && sealed_->out.sending(); }
  /// Receives bytes into the parts without waiting. Returns their number, 0 at the end, or −errno:
  /// −EBADMSG if what has come is not what the peer has sent. Where the call returns −EAGAIN, the
  /// socket becomes readable before there is more.
  ::ssize_t receive(std::span<const iovec> parts) noexcept {
    return sealed_ == nullptr ? receive_plain(parts) : sealed_->in.receive(fd_.get(), parts);
  }
  ::ssize_t receive(std::span<std::byte> bytes) noexcept {
    const iovec part{bytes.data(), bytes.size()};
    return receive({&part, 1});
  }
  /// Saves system calls of a reader that always reads until −EAGAIN before it waits.
  void allow_read_ahead() noexcept {
    if (sealed_ != nullptr) sealed_->in.allow_read_ahead();
  }

 private:
  ::ssize_t send_plain(std::span<const iovec> parts) const noexcept;
  ::ssize_t receive_plain(std::span<const iovec> parts) const noexcept;

  Fd fd_;
  std::unique_ptr<SealedStream> sealed_; ///< null: bytes go as they are
};

/// Explains the −EBADMSG of a receiver; `from` and `to` name the two sides.
Status changed_on_the_way(std::string_view from, std::string_view to);

} // namespace whorl
