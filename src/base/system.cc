#include "base/system.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/bytes.h"
#include "base/open_sockets.h"
#include "base/received_fds.h"

namespace whorl {
namespace {

/// Repeats `call` while it is interrupted; turns its failure into −errno.
template <class Call>
auto retry(Call&& call) noexcept {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result < 0 ? static_cast<decltype(result)>(-errno) : result;
}

timespec to_timespec(std::uint64_t ns) noexcept {
  return {.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
          .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
}

int checked(long result) noexcept { return result < 0 ? -errno : static_cast<int>(result); }

/// Returns a new descriptor, or −errno, with a number above those of stdin, stdout and stderr as
/// long as there is one: a program that has closed these may still print.
int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int other = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (other < 0) return fd;
  ::close(fd);
  return other;
}

/// Returns the result of a call with a timeout, or −errno. An interruption counts as an early end,
/// so that signals do not prolong the call.
int unless_interrupted(int result) noexcept {
  if (result < 0) return errno == EINTR ? 0 : -errno;
  return result;
}

/// Returns the start of a small file; empty if it cannot be read.
std::string text_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  const ssize_t size = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

/// Returns how many numbers a list such as "0-3,8" has.
std::size_t count_of(const std::string& list) {
  std::size_t count = 0;
  for (const char* at = list.c_str(); *at >= '0' && *at <= '9';) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    const unsigned long last = *end == '-' ? std::strtoul(end + 1, &end, 10) : first;
    count += last >= first ? last - first + 1 : 0;
    at = *end == ',' ? end + 1 : end;
    if (at == end) break;
  }
  return count;
}

/// Returns a part of a mapping from the start of its first page on.
std::span<std::byte> pages_of(void* address, std::size_t size, std::size_t page) noexcept {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(address) % page;
  return {static_cast<std::byte*>(address) - before, before + size};
}

std::atomic<System*> current{nullptr};

} // namespace

std::uint64_t System::now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

int System::random_bytes(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ssize_t got = retry([&] { return ::getrandom(out.data(), out.size(), 0); });
    if (got < 0) return static_cast<int>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

void System::sleep_ns(std::uint64_t duration_ns) noexcept {
  timespec left = to_timespec(duration_ns);
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

void System::yield() noexcept { ::sched_yield(); }

std::size_t System::page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

int System::memfd_create(const char* name) noexcept {
  return above_standard(checked(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)));
}

int System::seal_size(int fd) noexcept {
  return checked(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL));
}

int System::size_sealed(int fd) noexcept {
  const int seals = checked(::fcntl(fd, F_GET_SEALS));
  return seals < 0 ? seals : (seals & F_SEAL_SHRINK) != 0;
}

int System::file_size(int fd, std::size_t* size) noexcept {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return -errno;
  *size = static_cast<std::size_t>(status.st_size);
  return 0;
}

int System::file_inode(int fd, std::uint64_t* inode) noexcept {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return -errno;
  *inode = status.st_ino;
  return 0;
}

std::size_t System::largest_file() noexcept {
  rlimit size{};
  return ::getrlimit(RLIMIT_FSIZE, &size) == 0 ? size.rlim_cur : RLIM_INFINITY;
}

int System::ftruncate(int fd, std::size_t size) noexcept {
  if (size > largest_file()) return -EFBIG;
  return retry([&] { return ::ftruncate(fd, static_cast<off_t>(size)); });
}

int System::fallocate(int fd, std::size_t offset, std::size_t size) noexcept {
  // Some kernels undo an interrupted call, which signals at short intervals would interrupt for
  // ever. Pieces end where a huge page may end.
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  for (const std::size_t end = offset + size; offset < end;) {
    const std::size_t next = std::min(end, round_up(offset + 1, kPiece));
    const int error = retry([&] {
      return ::fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(next - offset));
    });
    if (error < 0) return error;
    offset = next;
  }
  return 0;
}

int System::punch_hole(int fd, std::size_t offset, std::size_t size) noexcept {
  return retry([&] {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(size));
  });
}

int System::mmap(void* hint, std::size_t size, int protection, int flags, int fd,
                 std::size_t offset, void** address) noexcept {
  void* const mapped = ::mmap(hint, size, protection, flags, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return -errno;
  *address = mapped;
  return 0;
}

int System::munmap(void* address, std::size_t size) noexcept {
  return checked(::munmap(address, size));
}

int System::mprotect(void* address, std::size_t size, int protection) noexcept {
  return checked(::mprotect(address, size, protection));
}

int System::populate(void* address, std::size_t size) noexcept {
#ifdef MADV_POPULATE_WRITE
  const std::span<std::byte> pages = pages_of(address, size, page_bytes());
  return checked(::madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE));
#else
  static_cast<void>(address), static_cast<void>(size);
  return -ENOSYS;
#endif
}

int System::resident(void* address, std::size_t size, std::size_t* bytes) noexcept {
  const std::size_t page = page_bytes();
  const std::span<std::byte> all = pages_of(address, size, page);
  std::array<unsigned char, 4096> pages;
  *bytes = 0;
  for (std::size_t done = 0; done < all.size(); done += pages.size() * page) {
    const std::size_t part = std::min(all.size() - done, pages.size() * page);
    if (::mincore(all.data() + done, part, pages.data()) != 0) return -errno;
    const std::size_t count = (part + page - 1) / page;
    for (std::size_t i = 0; i < count; ++i) *bytes += (pages[i] & 1U) * page;
  }
  return 0;
}

int System::futex_wait(const std::atomic<std::uint32_t>* word, std::uint32_t expected,
                       std::uint64_t timeout_ns) noexcept {
  const timespec timeout = to_timespec(timeout_ns);
  return checked(::syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0));
}

int System::futex_wake(std::atomic<std::uint32_t>* word) noexcept {
  return checked(::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0));
}

int System::pidfd_open(int pid) noexcept {
  return above_standard(checked(::syscall(SYS_pidfd_open, pid, 0)));
}

int System::raise_signal(int signal) noexcept { return ::raise(signal) == 0 ? 0 : -EINVAL; }

std::uint32_t System::user_id() noexcept { return ::geteuid(); }

std::size_t System::open_files() noexcept {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 1024;
}

std::size_t System::locked_memory() noexcept {
  rlimit memory{};
  return ::getrlimit(RLIMIT_MEMLOCK, &memory) == 0 ? memory.rlim_cur : 0;
}

int System::close(int fd) noexcept {
  forget_socket(fd); // first, because another thread may get the number at once
  return checked(::close(fd));
}

int System::duplicate(int fd) noexcept {
  const int copy = above_standard(checked(::fcntl(fd, F_DUPFD_CLOEXEC, 0)));
  note_open_socket(copy);
  return copy;
}

int System::socket(int domain, int type) noexcept {
  const int fd = above_standard(checked(::socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  note_open_socket(fd);
  return fd;
}

int System::socket_pair(int type, std::span<int, 2> fds) noexcept {
  const int made =
      checked(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()));
  if (made < 0) return made;
  for (int& fd : fds) {
    fd = above_standard(fd);
    note_open_socket(fd);
  }
  return made;
}

int System::bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  return checked(::bind(fd, address, size));
}

int System::listen(int fd, int backlog) noexcept { return checked(::listen(fd, backlog)); }

int System::accept(int fd) noexcept {
  const int accepted = above_standard(
      retry([&] { return ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
  note_open_socket(accepted);
  return accepted;
}

int System::connect(int fd, const sockaddr* address, socklen_t size) noexcept {
  return checked(::connect(fd, address, size));
}

int System::getaddrinfo(const char* host, const char* port, const addrinfo& hints,
                        addrinfo** list) noexcept {
  return ::getaddrinfo(host, port, &hints, list);
}

int System::getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  return checked(::getsockname(fd, address, size));
}

int System::setsockopt(int fd, int level, int option, int value) noexcept {
  return checked(::setsockopt(fd, level, option, &value, sizeof value));
}

int System::setsockopt(int fd, int level, int option, std::string_view text) noexcept {
  return checked(::setsockopt(fd, level, option, text.data(), static_cast<socklen_t>(text.size())));
}

int System::getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept {
  return checked(::getsockopt(fd, level, option, value, size));
}

ssize_t System::sendmsg(int fd, const msghdr* message) noexcept {
  return retry([&] { return ::sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT); });
}

ssize_t System::recvmsg(int fd, msghdr* message) noexcept {
  const ssize_t got =
      retry([&] { return ::recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (got < 0) return got;
  for_each_received_fd(*message, [](int& received) {
    received = above_standard(received);
    note_open_socket(received);
  });
  return got;
}

ssize_t System::send(int fd, std::span<const std::byte> data) noexcept {
  return retry([&] { return ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
}

ssize_t System::recv(int fd, std::span<std::byte> out) noexcept {
  return retry([&] { return ::recv(fd, out.data(), out.size(), MSG_DONTWAIT); });
}

int System::unacknowledged(int fd) noexcept {
  int bytes = 0;
  const int result = checked(::ioctl(fd, SIOCOUTQ, &bytes));
  return result < 0 ? result : bytes;
}

int System::shutdown(int fd) noexcept { return checked(::shutdown(fd, SHUT_RDWR)); }

int System::shutdown_send(int fd) noexcept { return checked(::shutdown(fd, SHUT_WR)); }

int System::poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept {
  const timespec timeout = to_timespec(timeout_ns);
  return unless_interrupted(::ppoll(fds.data(), fds.size(), &timeout, nullptr));
}

int System::affinity(std::span<std::uint64_t> bits) noexcept {
  std::fill(bits.begin(), bits.end(), 0);
  return checked(
      ::sched_getaffinity(0, bits.size_bytes(), reinterpret_cast<cpu_set_t*>(bits.data())));
}

int System::set_affinity(std::span<const std::uint64_t> bits) noexcept {
  return checked(
      ::sched_setaffinity(0, bits.size_bytes(), reinterpret_cast<const cpu_set_t*>(bits.data())));
}

std::size_t System::total_cache_bytes() {
  // The kernel's figure comes first: on some virtual machines sysconf() adds up the caches of
  // processors that other machines have.
  std::size_t largest = 0, sharing = 1;
  constexpr int kIndices = 8;
  for (int index = 0; index < kIndices; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::size_t bytes = std::strtoul(text_of(folder + "size").c_str(), nullptr, 10) << 10;
    if (bytes <= largest) continue; // "32768K", or no such file
    largest = bytes;
    sharing = count_of(text_of(folder + "shared_cpu_list"));
  }
  const auto online = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  // A virtual machine with two cores is shown the whole cache, but others use most of it.
  constexpr std::size_t kMostOfOneCore = 32 << 20;
  const std::size_t most = online * kMostOfOneCore;
  if (largest > 0) {
    const std::size_t caches = online / std::max<std::size_t>(1, sharing);
    return std::min(most, largest * std::max<std::size_t>(1, caches));
  }
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = ::sysconf(level); bytes > 0)
      return std::min(most, static_cast<std::size_t>(bytes));
  }
  return 0;
}

int System::epoll_create() noexcept {
  return above_standard(checked(::epoll_create1(EPOLL_CLOEXEC)));
}

int System::epoll_add(int epoll_fd, int fd, std::uint32_t events, std::uint64_t data) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return checked(::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event));
}

int System::epoll_remove(int epoll_fd, int fd) noexcept {
  return checked(::epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr));
}

int System::epoll_wait(int epoll_fd, std::span<epoll_event> events,
                       std::uint64_t timeout_ns) noexcept {
  const timespec timeout = to_timespec(timeout_ns);
  const int size = static_cast<int>(events.size());
  const int ready =
      unless_interrupted(::epoll_pwait2(epoll_fd, events.data(), size, &timeout, nullptr));
  if (ready != -ENOSYS) return ready;
  // Before Linux 5.11 there are only whole milliseconds.
  const int timeout_ms = static_cast<int>((timeout_ns + 999'999) / 1'000'000);
  return unless_interrupted(::epoll_wait(epoll_fd, events.data(), size, timeout_ms));
}

System& sys() noexcept {
  // Constant-initialised storage and no destructor: safe to use while the process exits.
  alignas(System) static std::byte storage[sizeof(System)];
  static System* const real = new (storage) System;
  System* const replaced = current.load(std::memory_order_acquire);
  return replaced != nullptr ? *replaced : *real;
}

ScopedSystem::ScopedSystem(System* replacement) noexcept
    : previous_(current.exchange(replacement)) {}
ScopedSystem::~ScopedSystem() { current.store(previous_); }

} // namespace whorl
