#include "simulation/network.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "simulation/world.h"

namespace whorl::simulation {
namespace {

std::uint64_t now() noexcept { return world().scheduler().now_ns(); }

bool has_died(std::size_t process) noexcept {
  return world().scheduler().process_died_ns(process) <= now();
}

} // namespace

void Network::enter() {
  if (World::running() != nullptr) world().system_call();
}

std::uint64_t Network::latency() const noexcept {
  Random& random = world().random();
  return random.below(random.one_of<std::uint64_t>(1, 1'000, 50'000, longest_ns_));
}

int Network::add() {
  sockets_.push_back(std::make_unique<Socket>());
  sockets_.back()->owner = world().scheduler().process();
  sockets_.back()->ends_by_reset = world().random().chance(30);
  return kFirst + static_cast<int>(sockets_.size()) - 1;
}

/// Delivers what is sent from one end of a connection to the other.
Links::Delivery Network::deliver(const Socket& from, std::uint64_t sent_ns,
                                 std::uint64_t latency_ns) const noexcept {
  const auto repeats = from.thin ? Links::Repeats::kLinear : Links::Repeats::kDoubling;
  return links_.deliver(from.owner, at(from.peer).owner, sent_ns, latency_ns, repeats);
}

/// Whether nothing more will come from the other end, but for what is under way.
bool Network::ended(const Socket& socket) const {
  if (socket.cut) return true;
  const Socket& peer = at(socket.peer);
  if (peer.cut) return false; // that end tells nobody
  const std::uint64_t end_ns =
      std::min(peer.ended_ns, world().scheduler().process_died_ns(peer.owner));
  return end_ns <= now() && deliver(peer, end_ns, end_delay_ns_).arrives_ns <= now();
}

/// Whether the other end takes nothing more.
bool Network::gone(const Socket& socket) const {
  return ended(socket) && (socket.cut || at(socket.peer).closed || has_died(at(socket.peer).owner));
}

int Network::other_end(int fd) const {
  const Socket& socket = at(fd);
  return socket.peer < 0 || ended(socket) ? -1 : socket.peer;
}

int Network::socket(int, int) noexcept {
  enter();
  return add();
}

int Network::close(int fd) noexcept {
  if (fd < kFirst) return SimulatedSystem::close(fd);
  enter();
  Socket& socket = at(fd);
  socket.closed = true;
  socket.ended_ns = std::min(socket.ended_ns, now());
  for (const int arrived : socket.arrived) {
    at(arrived).closed = true;
    at(arrived).ended_ns = now();
  }
  world().note("close {}", fd - kFirst);
  world().scheduler().wake(this);
  return 0;
}

int Network::bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  SocketAddress& own = at(fd).address;
  own = SocketAddress::from(address, size);
  if (own.family() != AF_UNIX && own.port() == 0) own.set_port(next_port_++);
  const bool taken = std::any_of(sockets_.begin(), sockets_.end(), [&](const auto& other) {
    return other->listening && !other->closed && other->address == own && !has_died(other->owner);
  });
  return taken ? -EADDRINUSE : 0;
}

int Network::listen(int fd, int) noexcept {
  enter();
  at(fd).listening = true;
  return 0;
}

int Network::getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  const SocketAddress& own = at(fd).address;
  std::memcpy(address, own.data(), std::min(*size, own.size()));
  *size = own.size();
  return 0;
}

int Network::setsockopt(int fd, int level, int option, int value) noexcept {
  if (level != IPPROTO_TCP || option != TCP_THIN_LINEAR_TIMEOUTS) return 0;
  Socket& socket = at(fd);
  socket.thin = value != 0;
  // The option holds for what is already under way, too.
  if (socket.acknowledged_ns > now()) {
    socket.acknowledged_ns = deliver(socket, now(), latency()).acknowledged_ns;
  }
  return 0;
}

int Network::getsockopt(int fd, int, int option, void* value, socklen_t*) noexcept {
  if (option != SO_ERROR) return -EOPNOTSUPP;
  std::memcpy(value, &at(fd).error, sizeof(int));
  return 0;
}

int Network::connect(int fd, const sockaddr* address, socklen_t size) noexcept {
  enter();
  const SocketAddress to = SocketAddress::from(address, size);
  const auto listener =
      std::find_if(sockets_.begin(), sockets_.end(), [&](const std::unique_ptr<Socket>& other) {
        return other->listening && !other->closed && other->address == to &&
               !has_died(other->owner);
      });
  world().note("connect {} to {}", fd - kFirst, to.text());
  if (listener == sockets_.end()) {
    if (world().random().chance(50)) return -ECONNREFUSED;
    at(fd).error = ECONNREFUSED;
    at(fd).connected_ns = now() + latency();
    return -EINPROGRESS;
  }
  Socket& listening = **listener;
  const int other = add();
  at(other).owner = listening.owner;
  at(other).peer = fd;
  at(fd).peer = other;
  open(fd, other);
  plan_cut(fd, other);
  listening.arrived.push_back(other);
  world().scheduler().wake(this);
  return at(fd).connected_ns > now() ? -EINPROGRESS : 0;
}

int Network::accept(int fd) noexcept {
  enter();
  std::deque<int>& arrived = at(fd).arrived;
  const auto next = std::find_if(arrived.begin(), arrived.end(),
                                 [&](int one) { return at(one).connected_ns <= now(); });
  if (next == arrived.end()) return -EAGAIN;
  const int socket = *next;
  arrived.erase(next);
  at(socket).owner = world().scheduler().process();
  world().note("accept {}", socket - kFirst);
  return socket;
}

::ssize_t Network::sendmsg(int fd, const msghdr* message) noexcept {
  enter();
  Socket& socket = at(fd);
  if (socket.connected_ns > now() || (fills_ && world().random().chance(10))) {
    ++socket.refused;
    return -EAGAIN;
  }
  if (socket.error != 0) return -socket.error;
  if (gone(socket) || socket.ended_ns <= now())
    return world().random().chance(50) ? -EPIPE : -ECONNRESET;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* const part = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
    bytes.insert(bytes.end(), part, part + message->msg_iov[i].iov_len);
  }
  Rights rights = rights_in(*message);
  std::size_t size = bytes.size();
  if (fills_ && rights.empty() && world().random().chance(30))
    size = 1 + world().random().below(size);
  if (at(socket.peer).cut) { // the other end answers with a reset
    cut_at(socket);
    return static_cast<::ssize_t>(size);
  }
  if (socket.sent + size >= socket.cut_after) {
    size = socket.cut_after - socket.sent;
    world().note("cut {} after {} more bytes", fd - kFirst, size);
    cut_at(socket);
    if (!ends_notice_late_ || world().random().chance(60)) cut_at(at(socket.peer));
    if (size == 0) return -ECONNRESET;
    if (world().random().chance(50)) { // what is under way is lost
      socket.inbox.clear(), at(socket.peer).inbox.clear();
      return static_cast<::ssize_t>(size);
    }
  }
  socket.sent += size;
  std::deque<Segment>& inbox = at(socket.peer).inbox;
  // In order: no segment overtakes another.
  const std::uint64_t before = inbox.empty() ? 0 : inbox.back().arrives_ns;
  world().note("send {}: {} of {} bytes", fd - kFirst, size, bytes.size());
  bytes.resize(size);
  const Links::Delivery delivery = deliver(socket, now(), latency());
  inbox.push_back({.bytes = std::move(bytes),
                   .arrives_ns = std::max(before, delivery.arrives_ns),
                   .sender_view = world().publish(),
                   .rights = std::move(rights)});
  socket.acknowledged_ns = std::max(socket.acknowledged_ns, delivery.acknowledged_ns);
  world().scheduler().wake(this);
  return static_cast<::ssize_t>(size);
}

::ssize_t Network::recvmsg(int fd, msghdr* message) noexcept {
  enter();
  message->msg_controllen = 0;
  message->msg_flags = 0;
  Socket& socket = at(fd);
  if (socket.peer < 0) return -ENOTCONN;
  if (socket.inbox.empty() && ended(socket)) return socket.ends_by_reset ? -ECONNRESET : 0;
  if (socket.inbox.empty() || socket.inbox.front().arrives_ns > now()) return -EAGAIN;
  std::size_t most = 0;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) most += message->msg_iov[i].iov_len;
  if (world().random().chance(30)) most = 1 + world().random().below(most);
  std::size_t size = 0;
  std::size_t part_done = 0; // bytes of the first part of the message that are filled
  const iovec* into = message->msg_iov;
  while (size < most && !socket.inbox.empty() && socket.inbox.front().arrives_ns <= now()) {
    if (part_done == into->iov_len) {
      ++into;
      part_done = 0;
      continue;
    }
    const Rights rights = std::exchange(socket.inbox.front().rights, {});
    world().observe(socket.inbox.front().sender_view);
    std::vector<std::byte>& bytes = socket.inbox.front().bytes;
    const std::size_t part = std::min({bytes.size(), most - size, into->iov_len - part_done});
    std::copy_n(bytes.begin(), part, static_cast<std::byte*>(into->iov_base) + part_done);
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    if (bytes.empty()) {
      socket.inbox.pop_front();
      ++socket.taken;
    }
    part_done += part;
    size += part;
    if (rights.empty()) continue;
    grant(rights, message);
    break; // descriptors end what is received at once
  }
  world().note("receive {}: {} bytes", fd - kFirst, size);
  return static_cast<::ssize_t>(size);
}

/// Returns the events of a socket that are there now. Lowers `*next_ns` to the time of the next.
short Network::events_of(int fd, std::uint64_t* next_ns) {
  const Socket& socket = at(fd);
  const auto due = [&](std::uint64_t time) {
    if (time <= now()) return true;
    *next_ns = std::min(*next_ns, time);
    return false;
  };
  if (socket.listening) {
    const auto is_due = [&](int arrived) { return due(at(arrived).connected_ns); };
    return std::count_if(socket.arrived.begin(), socket.arrived.end(), is_due) > 0 ? POLLIN : 0;
  }
  if (!due(socket.connected_ns)) return 0;
  if (socket.peer < 0) return POLLOUT | POLLERR;
  short events = POLLOUT;
  if (socket.inbox.empty()) { // the end comes after all bytes
    if (ended(socket)) events |= POLLIN | POLLHUP;
  } else if (due(socket.inbox.front().arrives_ns)) {
    events |= POLLIN;
  }
  return events;
}

int Network::poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept {
  enter();
  const std::uint64_t end = now() + timeout_ns;
  for (;;) {
    int ready = 0;
    // A death wakes nobody; others look again now and then.
    std::uint64_t wake_ns = std::min(end, now() + kMaxSleepNs);
    for (pollfd& one : fds) {
      one.revents = 0;
      if (one.fd < kFirst) continue;
      const short always = POLLERR | POLLHUP;
      one.revents = static_cast<short>(events_of(one.fd, &wake_ns) & (one.events | always));
      ready += one.revents != 0;
    }
    if (ready > 0 || now() >= end) {
      world().note("poll of {}: {} ready", fds.size(), ready);
      return ready;
    }
    world().scheduler().sleep(wake_ns, this);
  }
}

::ssize_t Network::send(int fd, std::span<const std::byte> data) noexcept {
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return sendmsg(fd, &message);
}

::ssize_t Network::recv(int fd, std::span<std::byte> out) noexcept {
  iovec part{out.data(), out.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return recvmsg(fd, &message);
}

int Network::shutdown(int fd) noexcept {
  if (fd < kFirst) return -EBADF;
  enter();
  Socket& socket = at(fd);
  socket.listening = false;
  socket.ended_ns = std::min(socket.ended_ns, now());
  for (const int arrived : socket.arrived) {
    at(arrived).closed = true;
    at(arrived).ended_ns = now();
  }
  world().scheduler().wake(this);
  return 0;
}

int Network::shutdown_send(int fd) noexcept {
  if (fd < kFirst) return -EBADF;
  enter();
  at(fd).ended_ns = std::min(at(fd).ended_ns, now());
  world().note("end {}", fd - kFirst);
  world().scheduler().wake(this);
  return 0;
}

int Network::random_bytes(std::span<std::byte> out) noexcept {
  for (std::byte& byte : out) byte = static_cast<std::byte>(world().random().next());
  return 0;
}

} // namespace whorl::simulation
