// Connections of the simulated network over links that lose bytes, and cuts of connections.
#include <algorithm>

#include "simulation/network.h"
#include "simulation/world.h"

namespace whorl::simulation {

/// Opens a connection between two sockets, at once or after a while.
void Network::open(int fd, int other) {
  Random& random = world().random();
  const std::uint64_t now = world().scheduler().now_ns();
  const Links::Delivery opened =
      links_.deliver(at(fd).owner, at(other).owner, now, latency(), Links::Repeats::kOpening);
  std::uint64_t connected_ns = opened.acknowledged_ns;
  // Connections within one host are there at once.
  if (!random.chance(70) && opened.acknowledged_ns < now + longest_ns_) connected_ns = now;
  at(fd).connected_ns = at(other).connected_ns = connected_ns;
}

/// Decides whether a new connection is going to be cut, and after which byte.
void Network::plan_cut(int fd, int other) {
  Random& random = world().random();
  if (cuts_left_ == 0 || !random.chance(30)) return;
  --cuts_left_;
  // At any byte, or behind a message of a handshake.
  const std::uint64_t byte = random.below(cut_within_);
  at(random.chance(50) ? fd : other).cut_after =
      random.one_of<std::uint64_t>(byte, byte, 72, 76, 108);
}

/// Lets one end of a connection know that it has been cut.
void Network::cut_at(Socket& socket) {
  cuts_.push_back(
      {.from = socket.owner, .to = at(socket.peer).owner, .at_ns = world().scheduler().now_ns()});
  socket.cut = true;
  world().scheduler().wake(this);
}

std::size_t Network::open_sockets(std::size_t process) const noexcept {
  return static_cast<std::size_t>(std::count_if(
      sockets_.begin(), sockets_.end(),
      [process](const auto& socket) { return socket->owner == process && !socket->closed; }));
}

int Network::unacknowledged(int fd) noexcept {
  const Socket& socket = at(fd);
  if (socket.peer < 0 || ended(socket)) return 0;
  return socket.acknowledged_ns > world().scheduler().now_ns() ? 1 : 0;
}

} // namespace whorl::simulation
