#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "perf/compare/raw_limits.h"

namespace limits {
namespace {

constexpr int kTrips = 2000;
constexpr std::size_t kStreamBytes = std::size_t{128} << 20;
constexpr std::size_t kPieceBytes = 256 << 10;
constexpr std::size_t kLargestPiece = 1 << 20;
constexpr double kLimitSeconds = 20; ///< limit for each connection
constexpr std::array<std::size_t, 8> kExchanged{8,         1 << 10, 8 << 10, 64 << 10,
                                                512 << 10, 1 << 20, 8 << 20, 64 << 20};

[[noreturn]] void fail(const char* call) {
  throw Failure(std::string(call) + ": " + std::strerror(errno) + ".");
}

void enter(const std::string& namespace_path) {
  const int fd = ::open(namespace_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) fail(namespace_path.c_str());
  ::close(fd);
}

/// Names of congestion controls to try, since the limits must not depend on the system's choice; ""
/// is that choice.
constexpr const char* kControls[] = {"", "cubic", "reno"};
constexpr std::size_t kNumControls = std::size(kControls);
using Addresses = std::array<sockaddr_in, kNumControls>; ///< address for each congestion control

/// Makes a socket with this congestion control. The control is set before there is a connection,
/// since a connection keeps parts of its first one (BBR its pacing timer). Where the system lacks
/// the control, the socket keeps the system's choice.
int new_socket(const char* control) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  if (*control != 0) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control,
                 static_cast<socklen_t>(std::strlen(control)));
  }
  return fd;
}

/// Connected socket that never blocks.
class Stream {
 public:
  /// Sends messages from, and receives messages into, `room` bytes over and over; 1: always the
  /// same place.
  Stream(int fd, std::size_t room) : fd_(fd), room_(room), from_(room + kLargestPiece, 1) {
    to_.resize(from_.size());
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  ~Stream() { ::close(fd_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Sends `out` bytes and receives `in` bytes at the same time, in any order, at most `piece` per
  /// call.
  void exchange(std::size_t out, std::size_t in, std::size_t piece = kPieceBytes) {
    std::size_t sent = 0, received = 0;
    while (sent < out || received < in) {
      if (sent < out) {
        const ssize_t moved =
            ::send(fd_, from_.data() + sent % room_, std::min(out - sent, piece), MSG_NOSIGNAL);
        if (moved > 0) sent += static_cast<std::size_t>(moved);
        if (moved < 0 && errno != EAGAIN) fail("send");
      }
      if (received < in) {
        const ssize_t moved =
            ::recv(fd_, to_.data() + received % room_, std::min(in - received, piece), 0);
        if (moved > 0) received += static_cast<std::size_t>(moved);
        if (moved == 0) throw Failure("the other process went away.");
        if (moved < 0 && errno != EAGAIN) fail("recv");
      }
      if (seconds_since(start_) > kLimitSeconds) throw Failure("TCP took longer than 20 s.");
    }
  }

 private:
  int fd_;
  std::size_t room_;
  std::vector<char> from_, to_;
  Clock::time_point start_ = Clock::now();
};

int listen_at(const std::string& address, const char* control, sockaddr_in* bound) {
  const int fd = new_socket(control);
  *bound = {};
  bound->sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &bound->sin_addr);
  socklen_t size = sizeof *bound;
  if (::bind(fd, reinterpret_cast<sockaddr*>(bound), size) != 0 || ::listen(fd, 1) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(bound), &size) != 0) {
    fail("listening");
  }
  return fd;
}

// Takes the same steps on both sides; a round trip of 8 bytes before each step keeps the sides
// together.
void take_steps(Stream& stream, bool first, Figures* out) {
  const auto trips = [&](int count) {
    for (int i = 0; i < count; ++i) {
      stream.exchange(first ? 8 : 0, first ? 0 : 8);
      stream.exchange(first ? 0 : 8, first ? 8 : 0);
    }
  };
  trips(100);
  auto start = Clock::now();
  trips(kTrips);
  out->emplace_back("round_trip_us", seconds_since(start) * 1e6 / kTrips);
  for (int pass = 0; pass < 2; ++pass) { // the first pass opens the congestion window
    trips(1);
    start = Clock::now();
    stream.exchange(first ? kStreamBytes : 8, first ? 8 : kStreamBytes);
    if (pass > 0) out->emplace_back("one_way", kStreamBytes / seconds_since(start) / 1e9);
    trips(1);
    start = Clock::now();
    stream.exchange(kStreamBytes, kStreamBytes);
    if (pass > 0) out->emplace_back("two_way", kStreamBytes / seconds_since(start) / 1e9);
  }
}

// Measures the exchanges of a two-rank allreduce, through buffers of that size and not a small one
// that stays in the cache: for each size the median time of the best piece size.
void take_exchanges(Stream& stream, bool, Figures* out) {
  constexpr double kSecondsEach = 0.06;
  for (const std::size_t bytes : kExchanged) {
    double best_us = 0;
    std::size_t last = 0;
    for (const std::size_t limit : {std::size_t{64} << 10, kPieceBytes, kLargestPiece}) {
      const std::size_t piece = std::min(limit, bytes);
      if (piece == last) continue;
      last = piece;
      // Both sides compute the same number.
      const double expected = 6e-6 + static_cast<double>(bytes) / 3e9;
      std::vector<double> us(static_cast<std::size_t>(std::max(5.0, kSecondsEach / expected)));
      for (double& one : us) {
        const auto start = Clock::now();
        stream.exchange(bytes, bytes, piece);
        one = seconds_since(start) * 1e6;
      }
      std::nth_element(us.begin(), us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2),
                       us.end());
      const double median = us[us.size() / 2];
      best_us = best_us == 0 ? median : std::min(best_us, median);
    }
    out->emplace_back("exchange_" + std::to_string(bytes) + "_us", best_us);
  }
}

/// Steps to take on each connection, and the bytes of memory for it.
struct Program {
  void (*steps)(Stream& stream, bool first, Figures* out);
  std::size_t room;
};

/// Runs the second process and returns its exit status.
int answer(const std::vector<std::string>& namespaces, const Addresses& to,
           const Program& program) {
  try {
    pin(processors()[1]);
    if (!namespaces.empty()) enter(namespaces[1]);
    for (std::size_t i = 0; i < kNumControls; ++i) {
      const int fd = new_socket(kControls[i]);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&to[i]), sizeof to[i]) != 0) {
        fail("connect");
      }
      Stream stream(fd, program.room);
      Figures ignored;
      program.steps(stream, false, &ignored);
    }
    return 0;
  } catch (const std::exception&) {
    return 1; // the first process reports the error
  }
}

/// Process that is killed, and reaped, if it is not awaited because of an error.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    await();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void await() { ::waitpid(std::exchange(pid_, 0), nullptr, 0); }

 private:
  pid_t pid_; ///< 0: the process has been reaped
};

bool is_time(const std::string& figure) { return figure.ends_with("_us"); }

void measure(const std::vector<std::string>& namespaces, const Program& program, Figures* out) {
  if (!namespaces.empty()) enter(namespaces[0]);
  Addresses bound;
  std::array<int, kNumControls> listeners;
  for (std::size_t i = 0; i < kNumControls; ++i) {
    listeners[i] =
        listen_at(namespaces.empty() ? "127.0.0.1" : namespaces[2], kControls[i], &bound[i]);
  }
  const pid_t pid = ::fork();
  if (pid < 0) fail("fork");
  if (pid == 0) ::_exit(answer(namespaces, bound, program));
  Child other(pid);
  pin(processors()[0]);
  for (const int listener : listeners) {
    pollfd waiting{listener, POLLIN, 0};
    const int fd = ::poll(&waiting, 1, 5000) == 1 ? ::accept(listener, nullptr, nullptr) : -1;
    if (fd < 0) throw Failure("the second process could not connect.");
    Stream stream(fd, program.room);
    Figures found;
    program.steps(stream, true, &found);
    if (out->empty()) *out = found;
    for (std::size_t i = 0; i < found.size(); ++i) { // keep the best of all congestion controls
      double& best = (*out)[i].second;
      best = is_time(found[i].first) ? std::min(best, found[i].second)
                                     : std::max(best, found[i].second);
    }
    ::close(listener);
  }
  other.await();
}

} // namespace

void measure_tcp(const std::vector<std::string>& namespaces, Figures* out) {
  measure(namespaces, {take_steps, 1}, out);
}

void measure_exchanges(const std::vector<std::string>& namespaces, Figures* out) {
  measure(namespaces, {take_exchanges, kExchanged.back()}, out);
}

} // namespace limits
