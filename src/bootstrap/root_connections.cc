// The connections of a root: reading contributions and writing answers.
#include "bootstrap/root_connections.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/identity.h"
#include "net/keep_alive.h"

namespace whorl::bootstrap {

Status Root::prepare() { return fill_randomly(salt_); }

void Root::add_to(std::vector<pollfd>& fds, std::uint64_t* wake_ns) const {
  *wake_ns = std::min(*wake_ns, ends_ns_);
  for (const auto& connection : connections_) {
    const auto events =
        connection->answer != nullptr ? POLLIN | POLLRDHUP | POLLOUT : POLLIN | POLLRDHUP;
    fds.push_back({connection->socket.get(), static_cast<short>(events), 0});
    *wake_ns = std::min(*wake_ns, connection->deadline_ns);
  }
}

void Root::serve(std::span<const pollfd> fds) {
  // A death comes before what other ranks make of it.
  for (const bool hung_up : {true, false}) {
    for (std::size_t i = 0; i < fds.size(); ++i) {
      Connection& connection = *connections_[i];
      const auto happened = fds[i].revents;
      if (!connection.socket.valid() || happened == 0) continue;
      if (((happened & (POLLHUP | POLLRDHUP)) != 0) != hung_up) continue;
      send_answer(connection);
      if (connection.socket.valid()) receive(connection);
    }
  }
  check_deadlines();
  std::erase_if(connections_, [](const auto& c) { return !c->socket.valid(); });
}

void Root::welcome(std::uint32_t rank, StreamSocket socket) {
  // A member may be silent for long, between two rounds; one whose host has vanished is so for
  // ever.
  constexpr KeepAlive kKeepAlive{
      .idle_s = 30, .interval_s = 10, .count = 6, .unacknowledged_s = 90};
  static_cast<void>(keep_alive(socket.get(), kKeepAlive)); // unix sockets need none
  // The connection is in the list before receive() can fail, so that fail() reaches it.
  Connection& connection = *connections_.emplace_back(std::make_unique<Connection>());
  connection.rank = rank;
  connection.socket = std::move(socket);
  receive(connection);
}

void Root::receive(Connection& c) {
  for (;;) {
    std::span<std::byte> into;
    std::array<std::byte, 256> unwanted;
    const bool over = c.closing || (failed_ && c.member);
    if (over || c.leaving) { // only the end of the connection matters
      into = unwanted;
    } else if (c.header_bytes < sizeof c.header) {
      into = std::as_writable_bytes(std::span(&c.header, 1)).subspan(c.header_bytes);
    } else {
      into = body_of(c).subspan(c.body_bytes);
    }
    const ssize_t got =
        over || c.leaving ? sys().recv(c.socket.get(), into) : c.socket.receive(into);
    if (got == -EAGAIN) return;
    if (got == -EBADMSG) return fail_as_changed(c);
    if (got <= 0) return hung_up(c);
    if (over) continue;
    if (c.leaving) return hung_up(c); // it breaks the protocol
    if (c.header_bytes < sizeof c.header) {
      c.header_bytes += static_cast<std::size_t>(got);
      if (c.header_bytes == sizeof c.header && !begin(c)) return;
    } else {
      c.body_bytes += static_cast<std::size_t>(got);
    }
    if (c.header_bytes < sizeof c.header || c.body_bytes < body_of(c).size()) continue;
    c.header_bytes = c.body_bytes = 0;
    switch (c.header.kind) {
      case ContributionKind::kData:
        c.contributed = true;
        if (++contributions_ == nranks_) return answer_all();
        break;
      case ContributionKind::kLeaving:
        c.leaving = true;
        break;
      case ContributionKind::kFailed:
        return give_up(c);
    }
  }
}

std::span<std::byte> Root::body_of(Connection& c) {
  if (c.header.kind == ContributionKind::kFailed) return c.reason;
  if (c.header.kind == ContributionKind::kLeaving) return {};
  return std::span(all_).subspan(c.rank * contribution_bytes_, contribution_bytes_);
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
      const bool to_be_told = failed_ && c.member && c.answer != failure_;
      c.answer = nullptr;
      if (to_be_told) return start_answer(c, failure_);
      if (c.closing) static_cast<void>(sys().shutdown_send(c.socket.get()));
      return;
    }
    const ssize_t sent = c.socket.send(rest);
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
