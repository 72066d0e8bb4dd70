#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/system.h"

namespace whorl::fuzz {

/// System whose sockets deliver given bytes, in pieces of a given size with pauses between them,
/// and keep what is sent. Any number that is not negative is a socket. Time passes only while
/// somebody waits, and random bytes are always the same ones.
class FedSystem final : public System {
 public:
  /// Bytes from the other side of a socket, and those sent to that side.
  struct Socket {
    std::span<const std::byte> in;
    std::size_t piece = SIZE_MAX; ///< largest number of bytes of one call
    bool ends = true; ///< whether the other side hangs up behind the bytes, or is silent
    std::vector<std::byte> out;
    bool pause = false; ///< whether the next call finds nothing
  };
  Socket& operator[](int fd) { return sockets_[fd]; }

  std::uint64_t now_ns() noexcept override { return now_ns_ += 1000; }
  void sleep_ns(std::uint64_t duration_ns) noexcept override { now_ns_ += duration_ns; }
  void yield() noexcept override { now_ns_ += 1000; }
  int random_bytes(std::span<std::byte> out) noexcept override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
    return 0;
  }
  int close(int) noexcept override { return 0; }
  int setsockopt(int, int, int, int) noexcept override { return 0; }
  int unacknowledged(int) noexcept override { return 0; }
  int shutdown_send(int) noexcept override { return 0; }
  int epoll_create() noexcept override { return kEpoll; }
  int epoll_add(int, int fd, std::uint32_t, std::uint64_t data) noexcept override {
    watched_[fd] = data;
    return 0;
  }
  int epoll_wait(int, std::span<epoll_event> events, std::uint64_t timeout_ns) noexcept override {
    now_ns_ += timeout_ns;
    std::size_t count = 0;
    for (const auto& [fd, data] : watched_) {
      if (count < events.size()) events[count++] = {.events = EPOLLIN, .data = {.u64 = data}};
    }
    return static_cast<int>(count);
  }
  int poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept override {
    now_ns_ += timeout_ns;
    for (pollfd& entry : fds) entry.revents = entry.events;
    return static_cast<int>(fds.size());
  }
  ssize_t send(int fd, std::span<const std::byte> data) noexcept override {
    auto& out = sockets_[fd].out;
    out.insert(out.end(), data.begin(), data.end());
    return static_cast<ssize_t>(data.size());
  }
  ssize_t sendmsg(int fd, const msghdr* message) noexcept override {
    ssize_t sent = 0;
    for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
      const iovec& part = message->msg_iov[i];
      sent += send(fd, {static_cast<const std::byte*>(part.iov_base), part.iov_len});
    }
    return sent;
  }
  ssize_t recv(int fd, std::span<std::byte> out) noexcept override {
    Socket& socket = sockets_[fd];
    socket.pause = !socket.pause;
    if (!socket.pause) return -EAGAIN;
    if (socket.in.empty()) return socket.ends ? 0 : -EAGAIN;
    return take(socket, out, socket.piece);
  }
  ssize_t recvmsg(int fd, msghdr* message) noexcept override {
    if (message->msg_iovlen == 0) return 0;
    message->msg_controllen = 0;
    message->msg_flags = 0;
    Socket& socket = sockets_[fd];
    ssize_t got = recv(fd, part_of(message->msg_iov[0]));
    if (got <= 0) return got;
    std::size_t left = socket.piece - static_cast<std::size_t>(got);
    for (std::size_t i = 1; i < message->msg_iovlen; ++i) {
      const ssize_t more = take(socket, part_of(message->msg_iov[i]), left);
      got += more;
      left -= static_cast<std::size_t>(more);
    }
    return got;
  }

 private:
  static constexpr int kEpoll = 1'000'000;
  static std::span<std::byte> part_of(const iovec& part) {
    return {static_cast<std::byte*>(part.iov_base), part.iov_len};
  }
  static ssize_t take(Socket& socket, std::span<std::byte> out, std::size_t most) {
    const auto part = socket.in.first(std::min({out.size(), most, socket.in.size()}));
    std::copy(part.begin(), part.end(), out.begin());
    socket.in = socket.in.subspan(part.size());
    return static_cast<ssize_t>(part.size());
  }

  std::map<int, Socket> sockets_;
  std::map<int, std::uint64_t> watched_; ///< data of epoll by socket
  std::uint64_t now_ns_ = 1'000'000'000;
};

} // namespace whorl::fuzz
