#pragma once

#include <atomic>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/system.h"

namespace whorl::test {

/// System in which chosen calls fail: all of one name, or the one with one number among those that
/// may fail with one errno.
class FailingSystem final : public System {
 public:
  FailingSystem() = default;
  /// Lets the call fail with `error`, which is ENOMEM, EMFILE or ECONNRESET, that has the number
  /// `failing` among those that may fail so, which are counted from 1.
  FailingSystem(long failing, int error) noexcept : failing_(failing), error_(error) {}
  /// Returns the number of calls so far that may fail with the error.
  long calls() const noexcept { return calls_.load(); }
  /// Returns the name of the call with the number, if it has failed; else an empty one.
  std::string_view failed() const noexcept { return failed_.load() ? name_ : std::string_view(); }

  /// Lets each call of that name fail with `error`, until heal().
  void fail(std::string_view call, int error) {
    call_ = call;
    error_ = error;
  }
  void heal() { call_.clear(); }
  /// Returns whether a call of that name has failed.
  bool has_failed_by_name() const noexcept { return failed_by_name_.load(); }

  int memfd_create(const char* name) noexcept override {
    return fails("memfd_create", kMemory | kDescriptor) ? -error_ : System::memfd_create(name);
  }
  int seal_size(int fd) noexcept override {
    return fails("seal_size", kMemory) ? -error_ : System::seal_size(fd);
  }
  int file_size(int fd, std::size_t* size) noexcept override {
    return fails("file_size", kMemory) ? -error_ : System::file_size(fd, size);
  }
  int file_inode(int fd, std::uint64_t* inode) noexcept override {
    return fails("file_inode", kMemory) ? -error_ : System::file_inode(fd, inode);
  }
  int ftruncate(int fd, std::size_t size) noexcept override {
    return fails("ftruncate", kMemory) ? -error_ : System::ftruncate(fd, size);
  }
  int fallocate(int fd, std::size_t offset, std::size_t size) noexcept override {
    return fails("fallocate", kMemory) ? -error_ : System::fallocate(fd, offset, size);
  }
  int punch_hole(int fd, std::size_t offset, std::size_t size) noexcept override {
    return fails("punch_hole", kMemory) ? -error_ : System::punch_hole(fd, offset, size);
  }
  int random_bytes(std::span<std::byte> out) noexcept override {
    return fails("random_bytes", kNothing) ? -error_ : System::random_bytes(out);
  }
  int mmap(void* hint, std::size_t size, int protection, int flags, int fd, std::size_t offset,
           void** address) noexcept override {
    return fails("mmap", kMemory)
               ? -error_
               : System::mmap(hint, size, protection, flags, fd, offset, address);
  }
  int populate(void* address, std::size_t size) noexcept override {
    return fails("populate", kMemory) ? -error_ : System::populate(address, size);
  }
  int pidfd_open(int pid) noexcept override {
    return fails("pidfd_open", kMemory | kDescriptor) ? -error_ : System::pidfd_open(pid);
  }
  int duplicate(int fd) noexcept override {
    return fails("duplicate", kDescriptor) ? -error_ : System::duplicate(fd);
  }
  int socket(int domain, int type) noexcept override {
    return fails("socket", kMemory | kDescriptor) ? -error_ : System::socket(domain, type);
  }
  int socket_pair(int type, std::span<int, 2> fds) noexcept override {
    return fails("socket_pair", kMemory | kDescriptor) ? -error_ : System::socket_pair(type, fds);
  }
  int bind(int fd, const sockaddr* address, socklen_t size) noexcept override {
    return fails("bind", kMemory) ? -error_ : System::bind(fd, address, size);
  }
  int listen(int fd, int backlog) noexcept override {
    return fails("listen", kMemory) ? -error_ : System::listen(fd, backlog);
  }
  int accept(int fd) noexcept override {
    return fails("accept", kMemory | kDescriptor | kConnection) ? -error_ : System::accept(fd);
  }
  int connect(int fd, const sockaddr* address, socklen_t size) noexcept override {
    return fails("connect", kMemory | kConnection) ? -error_ : System::connect(fd, address, size);
  }
  int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept override {
    return fails("getsockname", kMemory) ? -error_ : System::getsockname(fd, address, size);
  }
  int setsockopt(int fd, int level, int option, int value) noexcept override {
    return fails("setsockopt", kMemory) ? -error_ : System::setsockopt(fd, level, option, value);
  }
  int setsockopt(int fd, int level, int option, std::string_view text) noexcept override {
    return fails("setsockopt", kMemory) ? -error_ : System::setsockopt(fd, level, option, text);
  }
  int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept override {
    return fails("getsockopt", kMemory) ? -error_
                                        : System::getsockopt(fd, level, option, value, size);
  }
  ::ssize_t sendmsg(int fd, const msghdr* message) noexcept override {
    return fails("sendmsg", kMemory | kConnection) ? -error_ : System::sendmsg(fd, message);
  }
  ::ssize_t recvmsg(int fd, msghdr* message) noexcept override {
    return fails("recvmsg", kMemory | kConnection) ? -error_ : System::recvmsg(fd, message);
  }
  ::ssize_t send(int fd, std::span<const std::byte> data) noexcept override {
    return fails("send", kMemory | kConnection) ? -error_ : System::send(fd, data);
  }
  ::ssize_t recv(int fd, std::span<std::byte> out) noexcept override {
    return fails("recv", kMemory | kConnection) ? -error_ : System::recv(fd, out);
  }
  int shutdown(int fd) noexcept override {
    return fails("shutdown", kConnection) ? -error_ : System::shutdown(fd);
  }
  int shutdown_send(int fd) noexcept override {
    return fails("shutdown_send", kConnection) ? -error_ : System::shutdown_send(fd);
  }
  int poll(std::span<pollfd> fds, std::uint64_t timeout_ns) noexcept override {
    return fails("poll", kMemory) ? -error_ : System::poll(fds, timeout_ns);
  }
  int epoll_create() noexcept override {
    return fails("epoll_create", kMemory | kDescriptor) ? -error_ : System::epoll_create();
  }
  int epoll_add(int epoll_fd, int fd, std::uint32_t events, std::uint64_t data) noexcept override {
    return fails("epoll_add", kMemory) ? -error_ : System::epoll_add(epoll_fd, fd, events, data);
  }

 private:
  /// Reasons for which a call with a number may fail.
  enum Reason : unsigned {
    kNothing = 0,
    kMemory = 1,     ///< ENOMEM
    kDescriptor = 2, ///< EMFILE
    kConnection = 4, ///< ECONNRESET
  };

  bool fails(std::string_view call, unsigned reasons) noexcept {
    if (call == call_) {
      failed_by_name_.store(true);
      return true;
    }
    const unsigned asked = error_ == ENOMEM       ? kMemory
                           : error_ == EMFILE     ? kDescriptor
                           : error_ == ECONNRESET ? kConnection
                                                  : kNothing;
    if ((reasons & asked) == 0 || calls_.fetch_add(1) + 1 != failing_) return false;
    name_ = call;
    failed_.store(true); // pairs with the load in failed(): the name is there
    return true;
  }

  std::string call_;
  const long failing_ = 0;
  int error_ = 0;
  std::atomic<long> calls_{0};
  std::string_view name_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> failed_by_name_{false};
};

} // namespace whorl::test
