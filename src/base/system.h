#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

struct addrinfo;

namespace whorl {

/// Operating system as whorl uses it: time, randomness, system calls. One object, which tests
/// replace (see ScopedSystem) to inject failures and to control time.
///
/// Calls that can fail return a value ≥ 0 or −errno, and never touch `errno`. Interrupted calls
/// (EINTR) are repeated inside; those with a timeout end early instead. No call raises SIGPIPE.
/// File descriptors are close-on-exec, and have numbers above 2.
class System {
 public:
  virtual ~System() = default;

  // Time and randomness.
  virtual std::uint64_t now_ns() noexcept; ///< reads the monotonic clock
  virtual int random_bytes(std::span<std::byte> out) noexcept;
  virtual void sleep_ns(std::uint64_t duration_ns) noexcept;
  virtual void yield() noexcept; ///< calls sched_yield

  // Memory.
  virtual std::size_t page_bytes() noexcept;           ///< returns the bytes of a page of memory
  virtual int memfd_create(const char* name) noexcept; ///< makes the memfd sealable
  virtual int seal_size(int fd) noexcept;              ///< seals the memfd against shrinking
  virtual int size_sealed(int fd) noexcept;            ///< returns 1 if seal_size() was called
  virtual int file_size(int fd, std::size_t* size) noexcept;
  virtual int file_inode(int fd, std::uint64_t* inode) noexcept;
  /// Sets the size. Returns −EFBIG if it is above largest_file(); the kernel would send SIGXFSZ.
  virtual int ftruncate(int fd, std::size_t size) noexcept;
  virtual std::size_t largest_file() noexcept; ///< returns the limit on the size of a file
  /// Backs a part of the file with memory. After an error some of it may be backed.
  virtual int fallocate(int fd, std::size_t offset, std::size_t size) noexcept;
  virtual int punch_hole(int fd, std::size_t offset, std::size_t size) noexcept;
  /// Writes the address to `*address`. `hint` with MAP_FIXED replaces what is mapped there.
  virtual int mmap(void* hint, std::size_t size, int protection, int flags, int fd,
                   std::size_t offset, void** address) noexcept;
  virtual int munmap(void* address, std::size_t size) noexcept;
  virtual int mprotect(void* address, std::size_t size, int protection) noexcept;
  /// Maps all pages of a part of a mapping, so that writing to them is quick, if the kernel can
  /// (Linux 5.14).
  virtual int populate(void* address, std::size_t size) noexcept;
  /// Writes to `*bytes` how many bytes of a part of a mapping are in memory, in whole pages.
  virtual int resident(void* address, std::size_t size, std::size_t* bytes) noexcept;

  // Threads of this and other processes.
  /// Sleeps while `*word == expected`, at most `timeout_ns`. `word` may be in shared memory.
  virtual int futex_wait(const std::atomic<std::uint32_t>* word, std::uint32_t expected,
                         std::uint64_t timeout_ns) noexcept;
  virtual int futex_wake(std::atomic<std::uint32_t>* word) noexcept; ///< wakes all waiters
  virtual int pidfd_open(int pid) noexcept;
  virtual int raise_signal(int signal) noexcept; ///< sends a signal to the calling thread
  virtual std::uint32_t user_id() noexcept;      ///< returns the effective user
  /// Writes the processing units that the calling thread may use, as bits by their numbers.
  virtual int affinity(std::span<std::uint64_t> bits) noexcept;
  /// Sets the processing units that the calling thread may use.
  virtual int set_affinity(std::span<const std::uint64_t> bits) noexcept;
  virtual std::size_t open_files() noexcept;    ///< returns the limit on open files
  virtual std::size_t locked_memory() noexcept; ///< returns the limit on locked memory, in bytes

  // Files and sockets.
  virtual int close(int fd) noexcept;
  virtual int duplicate(int fd) noexcept;
  virtual int socket(int domain, int type) noexcept; ///< makes the socket nonblocking
  /// Makes two connected sockets of AF_UNIX, nonblocking.
  virtual int socket_pair(int type, std::span<int, 2> fds) noexcept;
  virtual int bind(int fd, const sockaddr* address, socklen_t size) noexcept;
  virtual int listen(int fd, int backlog) noexcept;
  virtual int accept(int fd) noexcept; ///< makes the new socket nonblocking
  virtual int connect(int fd, const sockaddr* address, socklen_t size) noexcept;
  /// Asks the resolver. Returns 0 or an error of netdb.h; errno is the reason of EAI_SYSTEM.
  virtual int getaddrinfo(const char* host, const char* port, const addrinfo& hints,
                          addrinfo** list) noexcept;
  virtual int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept;
  virtual int setsockopt(int fd, int level, int option, int value) noexcept;
  virtual int setsockopt(int fd, int level, int option, std::string_view text) noexcept;
  virtual int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept;
  virtual ::ssize_t sendmsg(int fd, const msghdr* message) noexcept;
  virtual ::ssize_t recvmsg(int fd, msghdr* message) noexcept;
  /// Sends without waiting.
  virtual ::ssize_t send(int fd, std::span<const std::byte> data) noexcept;
  /// Receives without waiting.
  virtual ::ssize_t recv(int fd, std::span<std::byte> out) noexcept;
  /// Returns how many bytes of what was sent the peer's kernel has not acknowledged.
  virtual int unacknowledged(int fd) noexcept;
  virtual int shutdown(int fd) noexcept;      ///< ends both directions
  virtual int shutdown_send(int fd) noexcept; ///< lets the peer read to the end, then see the end
  virtual int poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept;
  /// Returns the bytes of all caches of the last level, if all are like that of the first core; 0
  /// if unknown. Counts no more for a core than the largest processors have.
  virtual std::size_t total_cache_bytes();
  virtual int epoll_create() noexcept;
  virtual int epoll_add(int epoll_fd, int fd, std::uint32_t events, std::uint64_t data) noexcept;
  virtual int epoll_remove(int epoll_fd, int fd) noexcept;
  virtual int epoll_wait(int epoll_fd, std::span<epoll_event> events,
                         std::uint64_t timeout_ns) noexcept;
};

/// Returns the system in force.
System& sys() noexcept;

/// Replacement of the system for the lifetime of the object. For tests; one at a time.
class ScopedSystem {
 public:
  explicit ScopedSystem(System* replacement) noexcept;
  ~ScopedSystem();
  ScopedSystem(const ScopedSystem&) = delete;
  ScopedSystem& operator=(const ScopedSystem&) = delete;

 private:
  System* previous_;
};

/// Owner of a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) sys().close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

} // namespace whorl
