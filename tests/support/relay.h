#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "net/listener.h"

namespace whorl::test {

/// Attacker on the path: a port of loopback whose connections lead on to another address. Records
/// all bytes, and may change them.
class Relay {
 public:
  using Bytes = std::vector<std::byte>;
  /// Function that may change bytes of a direction, at their offset in it.
  using Change = std::function<void(bool to_target, std::size_t offset, std::span<std::byte>)>;

  explicit Relay(SocketAddress target, Change change = {})
      : target_(target), change_(std::move(change)) {
    Result<Fd> socket = listen_at(SocketAddress::ipv4({127, 0, 0, 1}, 0));
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    listener_ = *std::move(socket);
    address_ = *bound_address(listener_.get());
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const SocketAddress& address() const { return address_; }
  /// Returns what has gone to the target by the n-th connection, or come from there.
  Bytes sent(std::size_t n) const { return copy(n, true); }
  Bytes answered(std::size_t n) const { return copy(n, false); }
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  /// A connection: the side that came, the side of the target, and the bytes in each direction.
  struct Connection {
    std::array<Fd, 2> sides;
    std::array<Bytes, 2> recorded; ///< bytes to the target, bytes from the target
  };

  Bytes copy(std::size_t n, bool to_target) const {
    const std::lock_guard lock(mutex_);
    auto it = all_.begin();
    for (; it != all_.end() && n > 0; --n) ++it;
    return it == all_.end() ? Bytes() : it->recorded[to_target ? 0 : 1];
  }

  void run() {
    while (!stop_) {
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
      for (const Connection& it : all_) { // only this thread changes the list
        for (const Fd& side : it.sides) polled.push_back({side.get(), POLLIN, 0});
      }
      constexpr int kLookMs = 20;
      ::poll(polled.data(), polled.size(), kLookMs);
      std::size_t i = 1;
      for (Connection& it : all_) {
        for (std::size_t from = 0; from < 2; ++from, ++i) {
          if (polled[i].revents != 0) carry(it, from);
        }
      }
      if (polled[0].revents != 0) accept_one();
    }
  }

  void accept_one() {
    Connection made;
    made.sides[0] = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    made.sides[1] = Fd(::socket(target_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!made.sides[0].valid() ||
        ::connect(made.sides[1].get(), target_.data(), target_.size()) != 0) {
      return;
    }
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(made));
  }

  void carry(Connection& it, std::size_t from) {
    std::array<std::byte, 65536> bytes;
    if (!it.sides[from].valid()) return;
    const ssize_t got = ::recv(it.sides[from].get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      if (it.sides[1 - from].valid()) ::shutdown(it.sides[1 - from].get(), SHUT_WR);
      it.sides[from].reset();
      return;
    }
    const auto part = std::span(bytes).first(static_cast<std::size_t>(got));
    Bytes& recorded = it.recorded[from];
    if (change_) change_(from == 0, recorded.size(), part);
    {
      const std::lock_guard lock(mutex_);
      recorded.insert(recorded.end(), part.begin(), part.end());
    }
    if (it.sides[1 - from].valid()) {
      ::send(it.sides[1 - from].get(), part.data(), part.size(), MSG_NOSIGNAL);
    }
  }

  SocketAddress target_, address_;
  Change change_;
  Fd listener_;
  std::list<Connection> all_;
  mutable std::mutex mutex_; ///< guard of changes to the list and to recorded bytes
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

} // namespace whorl::test
