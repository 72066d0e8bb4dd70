#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/status.h"

namespace whorl {

/// Reserves `count` addresses that nobody else gets; there is no memory behind them.
Result<std::byte*> reserve_handles(std::size_t count, const char* plural);
/// Returns the error of a program that has `count` objects at the same time.
Status no_handle_left(std::size_t count, const char* plural);

/// Table of the objects of one kind that a program knows by handles. A handle is an address that
/// the program passes around, so it is looked up, never trusted. Handles are addresses that nobody
/// else has, given one after the other, so that the handle of an object that has gone is used again
/// only after kMax others. Any thread.
template <class Object>
class Handles {
 public:
  static constexpr std::size_t kMax = std::size_t{1} << 26;

  /// Makes an empty table, in whose error messages `plural` names the objects.
  explicit Handles(const char* plural) noexcept : plural_(plural) {}

  /// Enters an object and returns its handle.
  Result<void*> add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr) {
      const auto reserved = reserve_handles(kMax, plural_);
      if (!reserved.ok()) return reserved.status();
      first_ = *reserved;
    }
    if (objects_.size() == kMax) return no_handle_left(kMax, plural_);
    while (objects_.contains(first_ + made_ % kMax)) ++made_;
    void* const handle = first_ + made_ % kMax;
    objects_.emplace(handle, std::move(object));
    ++made_;
    return handle;
  }
  /// Returns null if `handle` stands for nothing (any more).
  std::shared_ptr<Object> find(void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  /// Returns whether add() has given `handle`, also if its object has been removed.
  bool was(void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<std::uintptr_t>(handle);
    const auto first = reinterpret_cast<std::uintptr_t>(first_);
    return first_ != nullptr && address >= first && address - first < kMax &&
           address - first < made_;
  }
  /// Removes an object and returns it; null if `handle` stands for nothing.
  std::shared_ptr<Object> remove(void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  const char* plural_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<Object>> objects_;
  std::byte* first_ = nullptr; ///< first of kMax addresses; null: none have been reserved
  std::size_t made_ = 0;       ///< number of handles that have been given or passed over
};

} // namespace whorl
