#include "api/handle.h"

#include <array>
#include <cstddef>
#include <new>
#include <unordered_set>
#include <utility>
#include <vector>

namespace whorl {
namespace {

// The handles that exist: a hash table whose buckets are cache lines. Looking up a handle reads one
// line and takes no lock. A handle whose bucket is full goes to `others`, which is searched only
// while it has handles; with fewer than a few thousand handles it hardly ever has.
constexpr std::size_t kBuckets = 1024;
struct alignas(64) Bucket {
  std::array<std::atomic<const whorlComm*>, 8> handles{};
};
constinit std::array<Bucket, kBuckets> buckets{};
constinit std::atomic<std::size_t> other_count{0};

/// State guarded by a mutex; never destroyed, because handles may outlive main().
struct Others {
  std::mutex mutex;
  std::unordered_set<const whorlComm*> handles;
  std::array<void*, 256> freed{}; ///< memory that is not given back yet, a ring
  std::size_t next_freed = 0;
};
Others& others() noexcept {
  alignas(Others) static std::byte memory[sizeof(Others)];
  static auto* const instance = new (memory) Others; // allocates nothing
  return *instance;
}

Bucket& bucket_of(const whorlComm* handle) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  return buckets[(address * 0x9e3779b97f4a7c15U >> 40U) % kBuckets];
}

void enter(const whorlComm* handle) {
  for (auto& place : bucket_of(handle).handles) {
    const whorlComm* none = nullptr;
    if (place.compare_exchange_strong(none, handle, std::memory_order_release)) return;
  }
  const std::lock_guard lock(others().mutex);
  others().handles.insert(handle);
  other_count.fetch_add(1, std::memory_order_release); // pairs with acquire in exists()
}

void remove(const whorlComm* handle) noexcept {
  for (auto& place : bucket_of(handle).handles) {
    const whorlComm* found = handle;
    if (place.compare_exchange_strong(found, nullptr, std::memory_order_relaxed)) return;
  }
  const std::lock_guard lock(others().mutex);
  other_count.fetch_sub(others().handles.erase(handle), std::memory_order_relaxed);
}

} // namespace

bool exists(const whorlComm* handle) noexcept {
  if (handle == nullptr) return false;
  for (const auto& place : bucket_of(handle).handles) {
    // pairs with release in enter()
    if (place.load(std::memory_order_acquire) == handle) return true;
  }
  if (other_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(others().mutex);
  return others().handles.contains(handle);
}

void leave_all() noexcept {
  const auto leave = [](const whorlComm* address) {
    const Inside scope(const_cast<whorlComm*>(address));
    if (!scope) return;
    auto& handle = const_cast<whorlComm&>(*address);
    if (handle.magic.load() != whorlComm::kAlive || handle.inside.load() != 1 ||
        handle.created.load(std::memory_order_acquire) != Code::kOk) {
      return;
    }
    // Another thread that begins a call, or ends the handle, sees that the handle is finalized, and
    // by whom, or its own mark is seen here.
    const bool left = handle.leaving.exchange(true);
    const bool finalized = handle.finalized.exchange(true);
    const bool alone = handle.inside.load() == 1 && handle.magic.load() == whorlComm::kAlive;
    if (alone && handle.communicator->leave()) return;
    handle.finalized = finalized;
    handle.leaving = left;
  };
  for (const Bucket& bucket : buckets) {
    for (const auto& place : bucket.handles) leave(place.load(std::memory_order_acquire));
  }
  std::vector<const whorlComm*> more;
  {
    const std::lock_guard lock(others().mutex);
    more.assign(others().handles.begin(), others().handles.end());
  }
  for (const whorlComm* const handle : more) leave(handle);
}

} // namespace whorl

whorlComm::whorlComm() { whorl::enter(this); }
whorlComm::~whorlComm() { whorl::remove(this); }

void* whorlComm::operator new(std::size_t bytes) { return ::operator new(bytes); }

void whorlComm::operator delete(void* memory) noexcept {
  {
    whorl::Others& others = whorl::others();
    const std::lock_guard lock(others.mutex);
    std::swap(memory, others.freed[others.next_freed++ % others.freed.size()]);
  }
  ::operator delete(memory);
}

void whorlComm::set_error(const whorl::Status& status) {
  if (communicator != nullptr && !communicator->comm_error().is_set()) return;
  const std::lock_guard lock(mutex_);
  error_ = status;
}

whorl::Status whorlComm::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void whorlComm::begin_making(std::shared_ptr<whorl::CommError> error) {
  const std::lock_guard lock(mutex_);
  making_ = std::move(error);
  if (!stopped_.ok()) making_->set(stopped_);
}

whorl::Status whorlComm::end_making() {
  const std::lock_guard lock(mutex_);
  making_.reset();
  return stopped_;
}

void whorlComm::stop_making(const whorl::Status& why) {
  const std::lock_guard lock(mutex_);
  stopped_ = why;
  if (making_ != nullptr) making_->set(why);
}
