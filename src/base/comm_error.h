#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/status.h"

namespace whorl {

/// First error of a communicator in this process, the one that ended it. Shared by the communicator
/// and its transports; every wait looks at is_set(). Any thread.
class CommError {
 public:
  /// Records `error` unless there is one already. Returns whether this call recorded it.
  bool set(Status error) {
    const std::lock_guard lock(mutex_);
    if (is_set_.load(std::memory_order_relaxed)) return false;
    status_ = std::move(error);
    is_set_.store(true, std::memory_order_release); // pairs with acquire in is_set()
    return true;
  }
  bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
  /// Returns the recorded error; success if there is none.
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  Status status_;
};

} // namespace whorl
