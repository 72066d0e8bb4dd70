#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/system.h"

namespace whorl {

/// Describes −errno of a call on memory in a file, with the remedy where it is a limit on files.
std::string shared_memory_error(int error);

/// Memory that several processes share: a memfd, mapped whole, readable and writable. The memfd has
/// no name, so only processes with the descriptor can open it, and nothing is left behind when a
/// process is killed. The memory is sparse (pages cost memory once they are touched) and cannot
/// shrink, so that no process can make another one's access fail.
class ShmSegment {
 public:
  ShmSegment() = default;
  ShmSegment(ShmSegment&& other) noexcept { *this = std::move(other); }
  ShmSegment& operator=(ShmSegment&& other) noexcept;
  ~ShmSegment() { close(); }

  /// Creates a segment of zeros. `name` is what /proc/PID/maps shows.
  static Result<ShmSegment> create(const char* name, std::size_t size);
  /// Maps a segment that another process has created. Refuses a descriptor that is not sealed
  /// against shrinking or smaller than `size`.
  static Result<ShmSegment> open(Fd fd, std::size_t size);

  /// Maps a segment of at least `size` bytes of a process that may still change it, for reading
  /// alone. Makes the same checks.
  static Result<ShmSegment> open_to_read(Fd fd, std::size_t size);

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  int fd() const noexcept { return fd_.get(); }
  /// Ensures that a range can be touched. Returns 0 or −errno. Otherwise, if there is no memory for
  /// a page, the kernel answers its first touch with SIGBUS.
  int allocate(std::size_t offset, std::size_t size) noexcept {
    return sys().fallocate(fd_.get(), offset, size);
  }

 private:
  static Result<ShmSegment> open(Fd fd, std::size_t size, int protection);
  Status map(std::size_t size, int protection);
  void close() noexcept;

  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace whorl
