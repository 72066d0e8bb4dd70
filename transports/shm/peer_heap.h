#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "base/system.h"
#include "transports/fifo/layout.h"

namespace whorl {

/// Heap of another process, readable and writable here. Mapped in windows when a descriptor first
/// needs them, since the heaps of all processes together may be larger than the address space. Any
/// thread.
class PeerHeap {
 public:
  /// Bytes of the smallest window. Larger: fewer system calls, more page tables.
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;

  /// Returns the object for the process with this key, which all communicators share. `fd` is the
  /// heap of that process, and is closed here if the process is known already.
  static Result<std::shared_ptr<PeerHeap>> of(std::uint64_t process_key, Fd fd);

  PeerHeap(Fd fd, std::uint64_t bytes) noexcept : fd_(std::move(fd)), bytes_(bytes) {}
  ~PeerHeap();
  PeerHeap(const PeerHeap&) = delete;
  PeerHeap& operator=(const PeerHeap&) = delete;

  bool contains(const Descriptor& descriptor) const noexcept {
    return descriptor.offset <= bytes_ && descriptor.bytes <= bytes_ - descriptor.offset;
  }
  /// Returns the memory of a descriptor that contains() accepts, or null if the memory cannot be
  /// mapped. Enters the kernel only for a part that has not been needed before.
  std::byte* at(const Descriptor& descriptor) noexcept {
    const std::size_t count = count_.load(std::memory_order_acquire); // pairs with release in map()
    for (std::size_t i = count; i-- > 0;) {
      if (windows_[i].holds(descriptor)) return windows_[i].use(descriptor);
    }
    return map(descriptor);
  }
  std::size_t windows() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  struct Window {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::byte* data = nullptr;
    std::unique_ptr<std::atomic<bool>[]> seen; ///< true once use() has read the block
    bool holds(const Descriptor& d) const noexcept {
      const std::uint64_t inside = d.offset - begin;
      return d.offset >= begin && inside <= bytes && d.bytes <= bytes - inside;
    }
    std::byte* use(const Descriptor& d) const noexcept;
  };
  /// Bytes that the kernel maps around a page at its first read (`fault_around_bytes`).
  static constexpr std::uint64_t kBlockBytes = 65536;
  std::byte* map(const Descriptor& descriptor) noexcept;

  const Fd fd_;
  const std::uint64_t bytes_;
  std::mutex mutex_; ///< lock for adding windows, which are never changed or removed
  std::atomic<std::size_t> count_{0};
  std::array<Window, 64> windows_;
};

} // namespace whorl
