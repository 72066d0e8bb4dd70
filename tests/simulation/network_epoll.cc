// epoll of the simulated network, edge-triggered.
#include <algorithm>
#include <cerrno>

#include "simulation/network.h"
#include "simulation/world.h"

namespace whorl::simulation {

int Network::epoll_create() noexcept { return add(); }

int Network::epoll_add(int epoll_fd, int fd, std::uint32_t events, std::uint64_t data) noexcept {
  enter();
  at(epoll_fd).watched.push_back({.fd = fd, .events = events, .data = data, .reported = 0});
  return 0;
}

int Network::epoll_remove(int epoll_fd, int fd) noexcept {
  std::erase_if(at(epoll_fd).watched, [fd](const Watch& watch) { return watch.fd == fd; });
  return 0;
}

/// Returns how often something has happened on a descriptor so far that an edge-triggered watch
/// reports. Lowers `*next_ns` to the time of the next.
std::uint64_t Network::edges_of(int fd, std::uint32_t events, std::uint64_t* next_ns) {
  const Socket& socket = at(fd);
  std::uint64_t edges = 0;
  if (socket.closed) return edges;
  for (const Watch& watch : socket.watched) edges += edges_of(watch.fd, watch.events, next_ns);
  if (socket.peer < 0) return edges;
  if ((events & EPOLLOUT) != 0) edges += 1 + socket.refused;
  if ((events & EPOLLIN) == 0) return edges;
  edges += socket.taken;
  for (const Segment& segment : socket.inbox) {
    if (segment.arrives_ns > world().scheduler().now_ns()) {
      *next_ns = std::min(*next_ns, segment.arrives_ns);
      return edges;
    }
    ++edges;
  }
  return edges + (ended(socket) ? 1 : 0);
}

int Network::epoll_wait(int epoll_fd, std::span<epoll_event> events,
                        std::uint64_t timeout_ns) noexcept {
  enter();
  Scheduler& scheduler = world().scheduler();
  const std::uint64_t end = scheduler.now_ns() + timeout_ns;
  for (;;) {
    std::size_t found = 0;
    std::uint64_t wake_ns = std::min(end, scheduler.now_ns() + kMaxSleepNs);
    for (Watch& watch : at(epoll_fd).watched) {
      const std::uint64_t edges = edges_of(watch.fd, watch.events, &wake_ns);
      if (edges == watch.reported || found == events.size()) continue;
      watch.reported = edges;
      events[found].events = watch.events & (EPOLLIN | EPOLLOUT);
      events[found++].data.u64 = watch.data;
    }
    if (found > 0 || scheduler.now_ns() >= end) {
      world().note("epoll: {} ready", found);
      return static_cast<int>(found);
    }
    scheduler.sleep(wake_ns, this);
  }
}

} // namespace whorl::simulation
