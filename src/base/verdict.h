#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/status.h"

namespace whorl {

/// The error that ended a communicator in this process. The first one wins. Shared by the
/// communicator and its transports; every wait looks at raised(). Any thread.
class Verdict {
 public:
  /// Records `error` unless there is one already. Returns whether this call recorded it.
  bool raise(Status error) {
    const std::lock_guard lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    status_ = std::move(error);
    raised_.store(true, std::memory_order_release); // pairs with acquire in raised()
    return true;
  }
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  /// The recorded error; success if there is none.
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status status_;
};

} // namespace whorl
