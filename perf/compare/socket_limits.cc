// What two processes can exchange over TCP at best on this machine: the bound that whorl's TCP
// transport is measured against. Two processes on a core each send n bytes to each other over one
// connection at the same time, as two ranks of an allreduce of n bytes do, and nothing else.
//
//     socket_limits                                            loopback
//     socket_limits --netns A B --address 10.0.0.1             A, which has the address, and B
//
// Prints for each size the time of an exchange and the rate each way, of the best of three ways to
// cut the bytes into system calls; medians. Small sizes: half a round trip, polling.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> netns;
  std::string address = "127.0.0.1";
  std::string congestion;
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64 << 20;
  std::vector<std::size_t> pieces{64 << 10, 256 << 10, SIZE_MAX};
  int buffer_bytes = 0;
  double factor = 8;
  double seconds = 0.15; ///< for each size and way
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "socket_limits: %s: %s.\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void pin(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void enter(const std::string& netns) {
  const int fd = ::open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) fail("cannot enter network namespace " + netns);
  ::close(fd);
}

void prepare(int fd, const Options& options) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (!options.congestion.empty() &&
      ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options.congestion.c_str(),
                   static_cast<socklen_t>(options.congestion.size())) != 0) {
    fail("no congestion control " + options.congestion);
  }
  if (options.buffer_bytes > 0) {
    for (const int which : {SO_SNDBUF, SO_RCVBUF}) {
      ::setsockopt(fd, SOL_SOCKET, which, &options.buffer_bytes, sizeof options.buffer_bytes);
    }
  }
}

/// Sends and receives n bytes, in calls of at most `piece` bytes.
void exchange(int fd, const char* from, char* to, std::size_t n, std::size_t piece) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < n || received < n) {
    if (sent < n) {
      const ssize_t moved =
          ::send(fd, from + sent, std::min(piece, n - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (moved > 0) sent += static_cast<std::size_t>(moved);
      if (moved < 0 && errno != EAGAIN) fail("send");
    }
    if (received < n) {
      const ssize_t moved = ::recv(fd, to + received, std::min(piece, n - received), MSG_DONTWAIT);
      if (moved > 0) received += static_cast<std::size_t>(moved);
      if (moved == 0) std::exit(1); // the other side has said why
      if (moved < 0 && errno != EAGAIN) fail("recv");
    }
  }
}

/// Both sides take the same number of rounds, which the first one chooses.
double median_us(int fd, bool first, const Options& options, std::vector<char>& from,
                 std::vector<char>& to, std::size_t n, std::size_t piece) {
  int rounds = 3;
  std::vector<double> times;
  for (int attempt = 0; attempt < 2; ++attempt) {
    times.clear();
    for (int i = 0; i < rounds; ++i) {
      const auto start = Clock::now();
      exchange(fd, from.data(), to.data(), n, piece);
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    std::sort(times.begin(), times.end());
    if (attempt > 0) break;
    int wanted = static_cast<int>(options.seconds * 1e6 / std::max(times.front(), 0.5));
    wanted = std::clamp(wanted, 5, 100000);
    int theirs = 0;
    exchange(fd, reinterpret_cast<char*>(&wanted), reinterpret_cast<char*>(&theirs), sizeof wanted,
             sizeof wanted);
    rounds = first ? wanted : theirs;
  }
  return times[times.size() / 2];
}

int run(int fd, bool first, const Options& options) {
  prepare(fd, options);
  std::vector<char> from(options.max_bytes, 1);
  std::vector<char> to(options.max_bytes, 0);
  if (first) std::printf("%12s %12s %12s %10s\n", "bytes", "us", "GB/s each way", "piece");
  for (std::size_t n = options.min_bytes; n <= options.max_bytes;
       n = static_cast<std::size_t>(static_cast<double>(n) * options.factor)) {
    double best = 0;
    std::size_t best_piece = 0;
    for (const std::size_t limit : options.pieces) {
      const std::size_t piece = std::min(limit, n);
      if (piece == best_piece) continue;
      const double us = median_us(fd, first, options, from, to, n, piece);
      if (best_piece == 0 || us < best) {
        best = us;
        best_piece = piece;
      }
    }
    if (first) {
      std::printf("%12zu %12.2f %12.2f %10zu\n", n, best, static_cast<double>(n) / best / 1000,
                  best_piece);
      std::fflush(stdout);
    }
  }
  return 0;
}

int listen_at(const Options& options, sockaddr_in& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  prepare(fd, options);
  socklen_t size = sizeof address;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 1) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("cannot listen at " + options.address);
  }
  return fd;
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what two processes can exchange over TCP.", "socket_limits");
  app.add_option("--netns", options.netns, "Network namespaces of the two processes")->expected(2);
  app.add_option("--address", options.address, "Address to listen at")->capture_default_str();
  app.add_option("--congestion", options.congestion, "TCP congestion control");
  app.add_option("--buffer", options.buffer_bytes, "SO_SNDBUF and SO_RCVBUF");
  app.add_option("--pieces", options.pieces, "Bytes of one system call at most, to choose from")
      ->check(CLI::PositiveNumber);
  app.add_option("-b,--minbytes", options.min_bytes, "Smallest size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("-e,--maxbytes", options.max_bytes, "Largest size")->capture_default_str();
  app.add_option("-f,--stepfactor", options.factor, "From size to size")
      ->check(CLI::Range(1.5, 1e6))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "For each size and way to cut it")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (::inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) {
    errno = EINVAL;
    fail(options.address + " is no IPv4 address");
  }
  if (!options.netns.empty()) enter(options.netns[0]);
  const int listener = listen_at(options, address);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    if (!options.netns.empty()) enter(options.netns[1]);
    pin(1);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    prepare(fd, options);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
    std::_Exit(run(fd, false, options));
  }
  pin(0);
  const int fd = ::accept(listener, nullptr, nullptr);
  if (fd < 0) fail("accept");
  const int code = run(fd, true, options);
  int status = 0;
  ::waitpid(child, &status, 0);
  return code != 0 || status != 0 ? 1 : 0;
}
