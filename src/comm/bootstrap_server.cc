// The connections of a root: who comes in, what is read and what is written.
#include "comm/bootstrap_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "transports/socket/listener.h"

namespace whorl::bootstrap {
namespace {

constexpr std::uint64_t kForeverNs = 3'600'000'000'000;

} // namespace

Root::Root(std::vector<Fd> listeners, const Identity& identity, const RootTerms& terms)
    : listeners_(std::move(listeners)),
      identity_(identity),
      port_is_users_(terms.port_is_users),
      patience_ends_ns_(sys().now_ns() + terms.patience_ns),
      acceptor_(
          [&] {
            std::vector<int> fds;
            for (const Fd& listener : listeners_) fds.push_back(listener.get());
            return fds;
          }(),
          rules(terms.same_user)) {}

AcceptorRules Root::rules(bool same_user) {
  return {.identity = &identity_,
          .rank = kRootRank,
          .same_user = same_user,
          .name = "the root of the rendezvous",
          .judge =
              [](const ConnectionName& name) {
                return name.role == SocketRole::kBootstrap ? HandshakeFailure::kNone
                                                           : HandshakeFailure::kName;
              },
          .awaited = [this] { return std::size_t{nranks_ - joined_}; },
          .welcome = [this](const ConnectionName& name,
                            Fd socket) { welcome(name, std::move(socket)); }};
}

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
    std::erase_if(connections_, [](const auto& c) { return !c->socket.valid(); });
  }
  close_door();
}

void Root::poll_all() {
  const std::uint64_t now = sys().now_ns();
  std::uint64_t wake_ns =
      std::min({now + kForeverNs, ends_ns_, joined_any_ ? UINT64_MAX : patience_ends_ns_});
  fds_.clear();
  for (const auto& connection : connections_) {
    const auto events =
        static_cast<short>(connection->answer != nullptr ? POLLIN | POLLOUT : POLLIN);
    fds_.push_back({connection->socket.get(), events, 0});
    wake_ns = std::min(wake_ns, connection->deadline_ns);
  }
  // Connections made in this round come after those that were polled.
  const std::size_t polled = connections_.size();
  acceptor_.add_to(fds_, &wake_ns);
  static_cast<void>(sys().poll(fds_, wake_ns > now ? wake_ns - now : 0));
  for (std::size_t i = 0; i < polled; ++i) {
    Connection& connection = *connections_[i];
    if (!connection.socket.valid() || fds_[i].revents == 0) continue;
    send_answer(connection);
    if (connection.socket.valid()) receive(connection);
  }
  if (const Status status = acceptor_.step(std::span(fds_).subspan(polled)); !status.ok()) {
    fail(status.code(), status.message());
    close_door();
  }
}

void Root::welcome(const ConnectionName& name, Fd socket) {
  // Among the others before it can be one of those that fail.
  Connection& connection = *connections_.emplace_back(std::make_unique<Connection>());
  connection.rank = name.from;
  connection.socket = std::move(socket);
  receive(connection);
}

void Root::close_door() {
  acceptor_.stop();
  stop_listening(listeners_);
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
