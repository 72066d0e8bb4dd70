#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace whorl {

/// Which parts of [0, capacity) are free: first fit, neighbours are joined. Not thread-safe. Sizes
/// are the caller's business to round.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t capacity) { give(0, capacity); }
  /// The lowest free offset with room, now taken.
  std::optional<std::size_t> take(std::size_t size);
  /// Gives back what take() gave.
  void give(std::size_t offset, std::size_t size);
  std::size_t free_bytes() const noexcept;
  std::size_t fragments() const noexcept { return free_.size(); }

 private:
  std::map<std::size_t, std::size_t> free_; ///< offset → size; never adjacent
};

/// A small sorted table from addresses to heap offsets. Written under the owner's lock, read by any
/// thread without one: a sequence number is odd while the table changes, and a reader that sees it
/// odd or changed gives up, for its caller can always copy instead.
class AddressIndex {
 public:
  static constexpr std::size_t kCapacity = 1024;

  bool full() const noexcept { return count_.load(std::memory_order_relaxed) == kCapacity; }
  /// Requires !full() and ranges that do not overlap.
  void insert(std::uintptr_t begin, std::size_t size, std::uint64_t offset) noexcept;
  void erase(std::uintptr_t begin) noexcept;
  /// Whether one range holds [address, address + size), and its offset there. No lock, no wait.
  bool find(std::uintptr_t address, std::size_t size, std::uint64_t* offset) const noexcept;

 private:
  struct Entry {
    std::atomic<std::uintptr_t> begin;
    std::atomic<std::size_t> size;
    std::atomic<std::uint64_t> offset;
  };
  std::size_t position(std::uintptr_t begin, std::size_t count) const noexcept;
  void copy(std::size_t from, std::size_t to) noexcept;

  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::size_t> count_{0};
  std::array<Entry, kCapacity> entries_{};
};

} // namespace whorl
