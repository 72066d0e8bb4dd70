#pragma once

#include <cstddef>

#include "perf/common/api.h"
#include "perf/common/options.h"

namespace perf {

/// A page-aligned buffer of one rank with guards on both sides. Single-threaded; outlived by the
/// communicator.
class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t bytes, Alloc alloc, Comm comm);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&& other) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) = delete;

  /// Where this program reads and writes.
  [[nodiscard]] std::byte* data() const { return data_; }
  /// What the library gets: data(), or the copy on the device.
  [[nodiscard]] std::byte* target() const { return device_ != nullptr ? device_ : data_; }
  /// Bring `bytes` from `offset` on from data() to target(), and back.
  void push(std::size_t offset, std::size_t bytes) const;
  void pull(std::size_t offset, std::size_t bytes) const;
  /// Writes the guards before the buffer and behind its first `used` bytes.
  void arm(std::size_t used);
  /// How many guard bytes of the target have changed since arm().
  [[nodiscard]] std::size_t damage() const;

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* device_ = nullptr; ///< null: there is none
  std::size_t used_ = 0;
  Alloc alloc_;
  Comm comm_;
  void* handle_ = nullptr;
};

/// Bytes that can be allocated on this host without swapping, also by the limits of the process's
/// control group. SIZE_MAX if unknown.
std::size_t available_memory();

/// Size of the last-level cache of this machine; a usual value if it is unknown.
std::size_t last_level_cache_bytes();

} // namespace perf
