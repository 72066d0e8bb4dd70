#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace whorl {

/// Free parts of [0, capacity): first fit; adjacent free ranges are merged. Not thread-safe. The
/// caller rounds sizes.
class FreeRanges {
 public:
  explicit FreeRanges(std::size_t capacity) { give(0, capacity); }
  /// Takes `size` bytes at the lowest offset where they are free, and returns the offset.
  std::optional<std::size_t> take(std::size_t size);
  /// Frees a range that take() returned.
  void give(std::size_t offset, std::size_t size);
  std::size_t free_bytes() const noexcept;
  std::size_t fragments() const noexcept { return free_.size(); }

 private:
  std::map<std::size_t, std::size_t> free_; ///< offset → size; never adjacent
};

/// Ranges that are not in use but keep their pages, so that the next user of as many bytes gets
/// them without a system call. Not thread-safe.
class KeptRanges {
 public:
  struct Range {
    std::size_t offset = 0, size = 0;
  };

  /// Keeps at most so many bytes.
  explicit KeptRanges(std::size_t most) noexcept : most_(most) {}
  std::size_t most() const noexcept { return most_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Keeps a range. Requires bytes() + size <= most().
  void give(std::size_t offset, std::size_t size);
  /// Takes the range of exactly this size that was given last, which may still be in a cache.
  std::optional<std::size_t> take(std::size_t size);
  /// Takes all ranges.
  std::vector<Range> take_all();

 private:
  std::size_t most_;
  std::size_t bytes_ = 0;
  std::map<std::size_t, std::vector<std::size_t>> by_size_; ///< offsets by size
};

/// Small sorted table from addresses to heap offsets. Written under the owner's lock, read by any
/// thread without a lock: a sequence number is odd while the table changes, and a reader that sees
/// it odd or changed reports "not found", because its caller can always copy instead.
class AddressIndex {
 public:
  static constexpr std::size_t kCapacity = 1024;

  bool full() const noexcept { return count_.load(std::memory_order_relaxed) == kCapacity; }
  /// Adds a range. Requires !full() and ranges that do not overlap.
  void insert(std::uintptr_t begin, std::size_t size, std::uint64_t offset) noexcept;
  void erase(std::uintptr_t begin) noexcept;
  /// Returns whether one range holds [address, address + size), and writes its heap offset to
  /// `*offset`. Takes no lock and never waits.
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
