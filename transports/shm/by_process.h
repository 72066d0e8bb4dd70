#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace whorl {

/// Objects that belong to other processes, one for each, by the key of the process
/// (PeerInfo::process_key). Communicators share an object, which lasts as long as one of them has
/// it. Any thread.
template <class T>
class ByProcess {
 public:
  /// Returns the object of a process, which `make()` makes, as a shared_ptr, if there is none.
  template <class Make>
  std::shared_ptr<T> of(std::uint64_t process_key, Make&& make) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<T>& entry = objects_[process_key];
    std::shared_ptr<T> object = entry.lock();
    if (object == nullptr) entry = object = std::forward<Make>(make)();
    return object;
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<T>> objects_;
};

} // namespace whorl
