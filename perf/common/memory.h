#pragma once

#include <cstddef>

#include "perf/common/api.h"
#include "perf/common/options.h"

namespace perf {

/// Page-aligned buffer of one rank with guards on both sides. Single-threaded. The communicator
/// must outlive the buffer.
class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t bytes, Alloc alloc, Comm comm);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;
  /// Frees the memory and allocates as much again, without its contents.
  void renew();

  /// Returns the host memory in which the program writes inputs and reads results.
  [[nodiscard]] std::byte* data() const { return data_; }
  /// Returns the address that the library gets: data(), or the copy on the device.
  [[nodiscard]] std::byte* target() const { return device_ != nullptr ? device_ : data_; }
  /// Copies `bytes` at `offset` from data() to target().
  void push(std::size_t offset, std::size_t bytes) const;
  /// Copies `bytes` at `offset` from target() to data().
  void pull(std::size_t offset, std::size_t bytes) const;
  /// Writes the guards before the buffer and behind its first `used` bytes.
  void arm(std::size_t used);
  /// Returns the number of guard bytes of the target that have changed since arm().
  [[nodiscard]] std::size_t damage() const;

 private:
  void allocate();
  void free() noexcept;

  std::size_t total_ = 0; ///< bytes from base_ on, guards included
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* device_ = nullptr; ///< copy on the device; nullptr: none
  std::size_t used_ = 0;
  Alloc alloc_;
  Comm comm_;
  void* handle_ = nullptr;
};

/// Returns the bytes that can be allocated on this host without swapping, within the limits of the
/// process's control group; SIZE_MAX if unknown.
std::size_t available_memory();

/// Returns the size of this machine's last-level cache in bytes; a usual value if it is unknown.
std::size_t last_level_cache_bytes();

} // namespace perf
