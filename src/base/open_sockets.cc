#include "base/open_sockets.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace whorl {
namespace {

// Largest number of descriptors of a process, unless the administrator has raised fs.nr_open. A
// socket with a larger number stays open in the children.
constexpr std::size_t kMost = std::size_t{1} << 20;

// One bit for each descriptor, without a lock, which a child could find held. A child that is
// forked between a system call and the note of it keeps that one socket open.
constinit std::array<std::atomic<std::uint64_t>, kMost / 64> open_sockets{};
constinit std::atomic<std::size_t> words_used{0}; // the others have never had a bit

constexpr bool has_bit(int fd) noexcept { return fd >= 0 && static_cast<std::size_t>(fd) < kMost; }
constexpr std::size_t place_of(int fd) noexcept { return static_cast<std::size_t>(fd) / 64; }
constexpr std::uint64_t bit_of(int fd) noexcept { return std::uint64_t{1} << (fd % 64); }

/// Replaces the sockets in a child of fork(), where only async-signal-safe functions may be called.
void let_go_in_child() noexcept {
  int lonely = -1;
  const std::size_t words = words_used.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t bits = open_sockets[i].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(i * 64) + std::countr_zero(bits);
      struct stat status;
      if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode) || fd == lonely) continue;
      // lint: System would note the socket.
      if (lonely < 0) lonely = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      // At the limit on open files the first number becomes free.
      if (lonely < 0 || ::dup3(lonely, fd, O_CLOEXEC) < 0) ::close(fd); // lint: as above
    }
  }
  if (lonely >= 0) ::close(lonely); // lint: as above
}

} // namespace

void note_open_socket(int fd) noexcept {
  if (!has_bit(fd)) return;
  const std::size_t place = place_of(fd);
  std::size_t used = words_used.load(std::memory_order_relaxed);
  while (used <= place &&
         !words_used.compare_exchange_weak(used, place + 1, std::memory_order_relaxed)) {
  }
  open_sockets[place].fetch_or(bit_of(fd), std::memory_order_relaxed);
}

void forget_socket(int fd) noexcept {
  if (!has_bit(fd)) return;
  std::atomic<std::uint64_t>& word = open_sockets[place_of(fd)];
  if ((word.load(std::memory_order_relaxed) & bit_of(fd)) == 0) return; // no socket
  word.fetch_and(~bit_of(fd), std::memory_order_relaxed);
}

void keep_sockets_from_children() noexcept {
  static const int once = pthread_atfork(nullptr, nullptr, let_go_in_child);
  static_cast<void>(once);
}

} // namespace whorl
