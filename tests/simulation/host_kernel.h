#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "simulation/network.h"

namespace whorl::simulation {

/// Kernel of one simulated host: sockets, and descriptors of memory, of processes and of datagrams,
/// which processes pass to each other over stream sockets. It may refuse calls. One run uses one
/// object.
class HostKernel final : public Network {
 public:
  /// Calls that may be refused.
  enum class Call : std::uint8_t { kMemory, kSize, kBack, kMap, kPidfd, kPass, kDatagrams };

  /// Lets one call of a process fail with `error`, −errno: the first one that it makes.
  void refuse(std::size_t process, Call call, int error) {
    refusal_ = Refusal{.process = process, .call = call, .error = error};
  }
  /// Returns whether a call has been refused.
  bool refused() const noexcept { return refused_; }
  /// Lets all calls of pidfd_open() fail, or those of one process, as some sandboxes do.
  void forbid_pidfds(bool all, std::size_t process) {
    pidfds_forbidden_ = all;
    without_pidfds_ = process;
  }
  /// Bounds the open descriptors of a process, sockets included.
  void limit(std::size_t process, std::size_t descriptors) {
    limited_ = process;
    most_descriptors_ = descriptors;
  }
  /// Gives a process another user than the others have.
  void set_stranger(std::size_t process) { stranger_ = process; }
  static std::uint32_t pid_of(std::size_t process) noexcept {
    return 2'000'000'000 + static_cast<std::uint32_t>(process);
  }

  // --- What a scenario looks at ---

  /// Returns the memory behind a descriptor; null if it is no descriptor of memory.
  std::byte* memory_of(int fd) const noexcept;
  /// Returns the process that a descriptor stands for; none if it is no pidfd.
  std::optional<std::size_t> process_of(int fd) const noexcept;
  /// Returns the number of open descriptors of a process, sockets included.
  std::size_t open_descriptors(std::size_t process) const noexcept;
  int mappings() const noexcept { return mappings_; }

  int close(int fd) noexcept override;
  int memfd_create(const char* name) noexcept override;
  int ftruncate(int fd, std::size_t size) noexcept override;
  int seal_size(int fd) noexcept override;
  int size_sealed(int fd) noexcept override;
  int file_size(int fd, std::size_t* size) noexcept override;
  int fallocate(int fd, std::size_t offset, std::size_t size) noexcept override;
  int mmap(void* hint, std::size_t size, int protection, int flags, int fd, std::size_t offset,
           void** address) noexcept override;
  int munmap(void* address, std::size_t size) noexcept override;
  int pidfd_open(int pid) noexcept override;
  int socket_pair(int type, std::span<int, 2> fds) noexcept override;
  int getsockopt(int fd, int level, int option, void* value, socklen_t* size) noexcept override;
  ::ssize_t sendmsg(int fd, const msghdr* message) noexcept override;
  ::ssize_t recvmsg(int fd, msghdr* message) noexcept override;
  std::uint32_t user_id() noexcept override;

 private:
  struct Object;
  struct Datagram {
    std::vector<std::byte> bytes;
    std::size_t sender_view;
    Rights rights;
  };
  /// Object behind descriptors: memory, a process, or an end of a pair of sockets for datagrams.
  struct Object {
    std::byte* memory = nullptr;
    std::size_t size = 0;
    bool is_memory = false, sealed = false;
    std::optional<std::size_t> process;
    std::weak_ptr<Object> outgoing; ///< end that gets what is sent to this one
    std::deque<Datagram> arrived;
  };
  struct Descriptor {
    std::size_t owner;
    std::shared_ptr<Object> object; ///< null: closed
  };
  struct Refusal {
    std::size_t process;
    Call call;
    int error;
  };
  static constexpr int kFirstObject = kFirst << 1;
  static constexpr std::size_t kNobody = SIZE_MAX;

  static bool is_object(int fd) noexcept { return fd >= kFirstObject; }
  const std::shared_ptr<Object>& object(int fd) const noexcept {
    return descriptors_[static_cast<std::size_t>(fd - kFirstObject)].object;
  }
  int refusal_of(Call call) noexcept;
  bool has_room() const noexcept;
  int open(std::shared_ptr<Object> object);
  void forget_dead() noexcept;
  Rights rights_in(const msghdr& message) noexcept override;
  void grant(const Rights& rights, msghdr* message) noexcept override;

  std::vector<Descriptor> descriptors_;
  std::optional<Refusal> refusal_;
  bool refused_ = false;
  bool pidfds_forbidden_ = false;
  std::size_t without_pidfds_ = kNobody, limited_ = kNobody, stranger_ = kNobody;
  std::size_t most_descriptors_ = 0;
  int mappings_ = 0;
};

} // namespace whorl::simulation
