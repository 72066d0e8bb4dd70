#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "net/address.h"
#include "simulation/links.h"
#include "simulation/system.h"

namespace whorl::simulation {

/// Operating system with stream sockets between fibres: a network that delivers any number of
/// bytes at a time, late, and may cut connections at any byte, or the links between hosts for a
/// while. A process that dies closes its sockets. One run uses one object.
class Network : public SimulatedSystem {
 public:
  /// Cuts up to this many connections of the run, each at a random one of the first bytes of one
  /// direction. Where ends may notice late, some cuts are known to one end at first, and to the
  /// other one when it next sends.
  void cut(unsigned connections, std::uint64_t within_bytes, bool ends_notice_late) noexcept {
    cuts_left_ = connections;
    cut_within_ = within_bytes;
    ends_notice_late_ = ends_notice_late;
  }
  /// Cut of a connection between two processes that has taken place.
  struct Cut {
    std::size_t from, to;
    std::uint64_t at_ns;
  };
  const std::vector<Cut>& cuts() const noexcept { return cuts_; }
  /// Returns the links between the hosts of processes; each process has one of its own.
  Links& links() noexcept { return links_; }
  /// Lets bytes be under way for up to this time, and the ends of connections for as long.
  void delay(std::uint64_t longest_ns) noexcept { longest_ns_ = end_delay_ns_ = longest_ns; }
  /// Says whether sockets are full now and then, so that they take a part of a message or none.
  void fill(bool now_and_then) noexcept { fills_ = now_and_then; }

  // --- What a scenario looks at after a run ---

  /// Returns the descriptor at the other end of a connection; −1 if it is cut or closed.
  int other_end(int fd) const;
  /// Returns the process to which a connection led, also if it is cut or closed.
  std::size_t led_to(int fd) const { return at(at(fd).peer).owner; }

  int socket(int domain, int type) noexcept override;
  int close(int fd) noexcept override;
  int bind(int fd, const sockaddr* address, socklen_t size) noexcept override;
  int listen(int fd, int backlog) noexcept override;
  int accept(int fd) noexcept override;
  int connect(int fd, const sockaddr* address, socklen_t size) noexcept override;
  int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept override;
  int setsockopt(int fd, int level, int option, int value) noexcept override;
  int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept override;
  ::ssize_t sendmsg(int fd, const msghdr* message) noexcept override;
  ::ssize_t recvmsg(int fd, msghdr* message) noexcept override;
  ::ssize_t send(int fd, std::span<const std::byte> data) noexcept override;
  ::ssize_t recv(int fd, std::span<std::byte> out) noexcept override;
  int unacknowledged(int fd) noexcept override;
  int shutdown(int fd) noexcept override;
  int shutdown_send(int fd) noexcept override;
  int poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept override;
  int epoll_create() noexcept override;
  int epoll_add(int epoll_fd, int fd, std::uint32_t events, std::uint64_t data) noexcept override;
  int epoll_remove(int epoll_fd, int fd) noexcept override;
  int epoll_wait(int epoll_fd, std::span<epoll_event> events,
                 std::uint64_t timeout_ns) noexcept override;
  int random_bytes(std::span<std::byte> out) noexcept override;
  std::size_t open_files() noexcept override { return 1024; }
  std::uint32_t user_id() noexcept override { return 1000; }

 protected:
  static constexpr int kFirst = 1 << 20; ///< descriptors that the kernel never gives

  /// Objects whose descriptors travel with bytes of a message.
  using Rights = std::vector<std::shared_ptr<void>>;
  /// Returns the objects of the descriptors in a message that the running process sends.
  virtual Rights rights_in(const msghdr&) noexcept { return {}; }
  /// Gives the running process descriptors of objects that have come with a message.
  virtual void grant(const Rights&, msghdr*) noexcept {}
  std::size_t open_sockets(std::size_t process) const noexcept;
  void enter(); ///< lets time pass and others run, as any system call does

 private:
  /// Bytes under way to a socket.
  struct Segment {
    std::vector<std::byte> bytes;
    std::uint64_t arrives_ns;
    std::size_t sender_view; ///< number of the view of what happened before they were sent
    Rights rights;           ///< objects that arrive with the first byte
  };
  /// A descriptor that an epoll watches, edge-triggered.
  struct Watch {
    int fd;
    std::uint32_t events;
    std::uint64_t data;
    std::uint64_t reported; ///< number of its edges that have been reported
  };
  /// A socket, or an epoll.
  struct Socket {
    std::size_t owner = 0;      ///< process
    std::vector<Watch> watched; ///< what it watches, if it is an epoll
    SocketAddress address;      ///< address that it is bound to
    bool listening = false;
    std::deque<int> arrived;        ///< connections that wait for accept()
    int peer = -1;                  ///< socket at the other end; −1: never connected
    int error = 0;                  ///< error of a connect() that has ended
    std::uint64_t connected_ns = 0; ///< time at which connect() ends
    bool closed = false;
    std::uint64_t ended_ns = UINT64_MAX;  ///< time from which on this side sends no more
    bool ends_by_reset = false;           ///< whether the other end's end shows as an error
    bool thin = false;                    ///< whether it has TCP_THIN_LINEAR_TIMEOUTS
    bool cut = false;                     ///< whether this end knows of a cut of the connection
    std::uint64_t cut_after = UINT64_MAX; ///< bytes sent by this side until then
    std::uint64_t sent = 0;
    std::uint64_t acknowledged_ns = 0; ///< time at which all that was sent is acknowledged
    std::deque<Segment> inbox;
    std::uint64_t taken = 0;   ///< segments that have left the inbox
    std::uint64_t refused = 0; ///< sends for which there was no room
  };
  static constexpr std::uint64_t kMaxSleepNs = 40'000'000;

  Socket& at(int fd) { return *sockets_[static_cast<std::size_t>(fd - kFirst)]; }
  const Socket& at(int fd) const { return *sockets_[static_cast<std::size_t>(fd - kFirst)]; }
  int add();
  std::uint64_t latency() const noexcept;
  Links::Delivery deliver(const Socket& from, std::uint64_t sent_ns,
                          std::uint64_t latency_ns) const noexcept;
  void open(int fd, int other);
  void plan_cut(int fd, int other);
  void cut_at(Socket& socket);
  bool gone(const Socket& socket) const;
  bool ended(const Socket& socket) const;
  short events_of(int fd, std::uint64_t* next_ns);
  std::uint64_t edges_of(int fd, std::uint32_t events, std::uint64_t* next_ns);

  std::vector<std::unique_ptr<Socket>> sockets_;
  std::uint16_t next_port_ = 40'000;
  Links links_;
  std::vector<Cut> cuts_;
  unsigned cuts_left_ = 0;
  std::uint64_t cut_within_ = 0;
  bool ends_notice_late_ = false;
  bool fills_ = true;
  std::uint64_t longest_ns_ = 5'000'000, end_delay_ns_ = 0;
};

} // namespace whorl::simulation
