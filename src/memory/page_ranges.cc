#include "memory/page_ranges.h"

#include <algorithm>
#include <iterator>

namespace whorl {

std::optional<std::size_t> FreeRanges::take(std::size_t size) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, available] = *range;
    if (available < size) continue;
    free_.erase(range);
    if (available > size) free_.emplace(offset + size, available - size);
    return offset;
  }
  return std::nullopt;
}

void FreeRanges::give(std::size_t offset, std::size_t size) {
  if (size == 0) return;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_.emplace_hint(next, offset, size);
}

std::size_t FreeRanges::free_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& [offset, size] : free_) bytes += size;
  return bytes;
}

void KeptRanges::give(std::size_t offset, std::size_t size) {
  by_size_[size].push_back(offset);
  bytes_ += size;
}

std::optional<std::size_t> KeptRanges::take(std::size_t size) {
  const auto found = by_size_.find(size);
  if (found == by_size_.end()) return std::nullopt;
  const std::size_t offset = found->second.back();
  found->second.pop_back();
  if (found->second.empty()) by_size_.erase(found);
  bytes_ -= size;
  return offset;
}

std::vector<KeptRanges::Range> KeptRanges::take_all() {
  std::vector<Range> all;
  for (const auto& [size, offsets] : by_size_) {
    for (const std::size_t offset : offsets) all.push_back({offset, size});
  }
  by_size_.clear();
  bytes_ = 0;
  return all;
}

// The stores to entries and count release, the loads acquire: a reader that has seen any value of a
// change also sees the odd sequence number stored before it, and its second look at the number
// fails.

/// Returns the index of the first of `count` entries that does not begin before `begin`. Only for
/// the writer.
std::size_t AddressIndex::position(std::uintptr_t begin, std::size_t count) const noexcept {
  const auto* const entry = std::lower_bound(
      entries_.data(), entries_.data() + count, begin, [](const Entry& e, std::uintptr_t value) {
        return e.begin.load(std::memory_order_relaxed) < value;
      });
  return static_cast<std::size_t>(entry - entries_.data());
}

void AddressIndex::copy(std::size_t from, std::size_t to) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed; // only the writer reads here
  entries_[to].begin.store(entries_[from].begin.load(kRelaxed), std::memory_order_release);
  entries_[to].size.store(entries_[from].size.load(kRelaxed), std::memory_order_release);
  entries_[to].offset.store(entries_[from].offset.load(kRelaxed), std::memory_order_release);
}

void AddressIndex::insert(std::uintptr_t begin, std::size_t size, std::uint64_t offset) noexcept {
  const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store(sequence + 1, std::memory_order_relaxed);
  std::size_t at = count_.load(std::memory_order_relaxed);
  count_.store(at + 1, std::memory_order_release);
  for (const std::size_t to = position(begin, at); at > to; --at) copy(at - 1, at);
  entries_[at].begin.store(begin, std::memory_order_release);
  entries_[at].size.store(size, std::memory_order_release);
  entries_[at].offset.store(offset, std::memory_order_release);
  sequence_.store(sequence + 2, std::memory_order_release); // pairs with acquire in find()
}

void AddressIndex::erase(std::uintptr_t begin) noexcept {
  const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  const std::size_t count = count_.load(std::memory_order_relaxed);
  std::size_t at = position(begin, count);
  if (at == count || entries_[at].begin.load(std::memory_order_relaxed) != begin) return;
  sequence_.store(sequence + 1, std::memory_order_relaxed);
  for (; at + 1 < count; ++at) copy(at + 1, at);
  count_.store(count - 1, std::memory_order_release);
  sequence_.store(sequence + 2, std::memory_order_release); // pairs with acquire in find()
}

bool AddressIndex::find(std::uintptr_t address, std::size_t size,
                        std::uint64_t* offset) const noexcept {
  constexpr auto kAcquire = std::memory_order_acquire;
  const std::uint64_t sequence =
      sequence_.load(kAcquire); // pairs with release in insert(), erase()
  if (sequence % 2 != 0) return false;
  std::size_t low = 0;
  std::size_t high = count_.load(kAcquire);
  while (low < high) { // finds the first entry that begins after `address`
    const std::size_t middle = (low + high) / 2;
    if (entries_[middle].begin.load(kAcquire) <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return false;
  const std::uintptr_t begin = entries_[low - 1].begin.load(kAcquire);
  const std::size_t room = entries_[low - 1].size.load(kAcquire);
  const std::uint64_t base = entries_[low - 1].offset.load(kAcquire);
  if (sequence_.load(std::memory_order_relaxed) != sequence) return false;
  const std::size_t inside = address - begin;
  if (inside > room || size > room - inside) return false;
  *offset = base + inside;
  return true;
}

} // namespace whorl
