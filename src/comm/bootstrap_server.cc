// The connections of a root: who comes in, what is read and what is written.
#include "comm/bootstrap_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace whorl::bootstrap {
namespace {

// Connections that have not authenticated themselves, at most; the oldest is dropped for a new one
// (a member tries again).
constexpr std::size_t kMaxStrangers = 1024;
constexpr std::uint64_t kForeverNs = 3'600'000'000'000;

} // namespace

Status Root::prepare() {
  const int result = sys().random_bytes(salt_);
  return result >= 0 ? Status()
                     : Status::error(Code::kSystemError,
                                     fmt::format("getrandom failed: {}", errno_text(result)));
}

void Root::run() {
  while (!finished()) {
    poll_all();
    check_deadlines();
    std::erase_if(connections_, [](const std::unique_ptr<Connection>& c) { return c->fd() < 0; });
  }
}

void Root::poll_all() {
  const std::uint64_t now = sys().now_ns();
  std::uint64_t wake_ns = std::min(now + kForeverNs, joined_any_ ? ends_ns_ : patience_ends_ns_);
  fds_.clear();
  fds_.push_back({listener_.get(), POLLIN, 0});
  for (const auto& connection : connections_) {
    short events = connection->handshake.events();
    if (connection->socket.valid()) {
      events = static_cast<short>(connection->answer != nullptr ? POLLIN | POLLOUT : POLLIN);
    }
    fds_.push_back({connection->fd(), events, 0});
    wake_ns = std::min(
        {wake_ns, connection->deadline_ns,
         connection->handshake.fd() >= 0 ? connection->handshake.deadline_ns() + 1 : UINT64_MAX});
  }
  static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));
  // Connections made in this round come after those that were polled.
  const std::size_t polled = connections_.size();
  for (std::size_t i = 0; i < polled; ++i) {
    Connection& connection = *connections_[i];
    const short ready = fds_[i + 1].revents;
    if (connection.handshake.fd() >= 0) {
      if (ready != 0 || sys().now_ns() > connection.handshake.deadline_ns()) greet(connection);
    } else if (connection.socket.valid() && ready != 0) {
      send_answer(connection);
      if (connection.socket.valid()) receive(connection);
    }
  }
  if (fds_[0].revents != 0 && listener_.valid()) accept_all();
}

void Root::accept_all() {
  for (int i = 0; i < 256; ++i) { // a bound: those already here come next
    Fd socket(sys().accept(listener_.get()));
    if (socket.get() == -EMFILE || socket.get() == -ENFILE) {
      fail(Code::kSystemError,
           fmt::format("the root of the rendezvous cannot open a socket for every rank: {}; raise "
                       "the limit on open files (ulimit -n) of its process",
                       errno_text(socket.get())));
      listener_.reset();
      return;
    }
    if (!socket.valid()) return;
    drop_oldest_stranger();
    auto connection = std::make_unique<Connection>();
    connection->handshake = Handshake::accepting(std::move(socket), identity_, kRootRank);
    connections_.push_back(std::move(connection)); // before it can be among those that fail
    greet(*connections_.back());
  }
}

void Root::drop_oldest_stranger() {
  const auto stranger = [](const auto& c) { return c->handshake.fd() >= 0; };
  const auto count = std::count_if(connections_.begin(), connections_.end(), stranger);
  if (static_cast<std::size_t>(count) < kMaxStrangers) return;
  connections_.erase(std::find_if(connections_.begin(), connections_.end(), stranger));
}

void Root::greet(Connection& connection) {
  Progress progress = connection.handshake.step();
  if (progress == Progress::kAdvanced) {
    if (connection.handshake.name().role == SocketRole::kBootstrap) {
      connection.handshake.admit();
    } else {
      connection.handshake.refuse(HandshakeFailure::kName);
    }
    progress = connection.handshake.step();
  }
  if (progress == Progress::kDone) {
    connection.rank = connection.handshake.name().from;
    connection.socket = connection.handshake.take();
    connection.handshake = Handshake();
    receive(connection);
  } else if (progress == Progress::kFailed) {
    if (log_enabled(LogLevel::kInfo)) {
      log(LogLevel::kInfo, "the root of the rendezvous turned a connection away: " +
                               connection.handshake.status().message());
    }
    connection.handshake = Handshake();
  }
}

void Root::receive(Connection& c) {
  for (;;) {
    std::span<std::byte> into;
    std::array<std::byte, 256> unwanted;
    const bool over = failed_ && c.member;
    if (over || c.contributed) { // nothing is of interest but the end
      into = unwanted;
    } else if (c.header_bytes < sizeof c.header) {
      into = std::as_writable_bytes(std::span(&c.header, 1)).subspan(c.header_bytes);
    } else {
      into = std::span(all_).subspan(c.rank * contribution_bytes_ + c.body_bytes,
                                     contribution_bytes_ - c.body_bytes);
    }
    iovec part{into.data(), into.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = sys().recvmsg(c.socket.get(), &message);
    if (got == -EAGAIN) return;
    if (got <= 0) return hung_up(c);
    if (over) continue;
    if (c.contributed) return hung_up(c); // it breaks the protocol
    if (c.header_bytes < sizeof c.header) {
      c.header_bytes += static_cast<std::size_t>(got);
      if (c.header_bytes == sizeof c.header && !join(c)) return;
    } else {
      c.body_bytes += static_cast<std::size_t>(got);
    }
    if (c.header_bytes == sizeof c.header && c.body_bytes == contribution_bytes_) {
      c.contributed = true;
      if (++contributions_ == nranks_) return answer_all();
    }
  }
}

void Root::start_answer(Connection& c, std::shared_ptr<const std::vector<std::byte>> answer) {
  c.answer = std::move(answer);
  c.answered = 0;
  c.closing = failed_;
  send_answer(c);
}

void Root::send_answer(Connection& c) {
  while (c.answer != nullptr) {
    const std::span<const std::byte> rest = std::span(*c.answer).subspan(c.answered);
    if (rest.empty()) {
      c.answer = nullptr;
      if (c.closing) static_cast<void>(sys().shutdown_send(c.socket.get()));
      return;
    }
    iovec part{const_cast<std::byte*>(rest.data()), rest.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t sent = sys().sendmsg(c.socket.get(), &message);
    if (sent == -EAGAIN) return;
    if (sent < 0) return hung_up(c);
    c.answered += static_cast<std::size_t>(sent);
  }
}

void Root::drop(Connection& c) {
  if (c.member && c.rank < members_.size() && members_[c.rank] == &c) members_[c.rank] = nullptr;
  c.member = false;
  c.deadline_ns = UINT64_MAX;
  c.answer = nullptr;
  c.socket.reset();
}

} // namespace whorl::bootstrap
