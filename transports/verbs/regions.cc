#include "transports/verbs/regions.h"

#include <sys/mman.h>

#include <cerrno>
#include <exception>

#include "base/log.h"
#include "transports/verbs/device.h"
#include "transports/verbs/errors.h"

namespace whorl {

VerbsRegions::~VerbsRegions() {
  if (watched_ != nullptr) watched_->unwatch(this);
  for (const auto& [begin, registration] : registrations_) {
    if (registration.region != nullptr) device_.api->dereg_mr(registration.region);
  }
}

bool VerbsRegions::find(std::span<const std::byte> memory, VerbsRegion* out) noexcept try {
  std::uint64_t offset = 0;
  if (!heap_find(memory.data(), memory.size(), &offset)) return false;
  Heap& heap = *existing_heap();
  const std::span<std::byte> whole = heap.extent(memory.data(), memory.size());
  if (whole.empty()) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(whole.data());
  std::call_once(watching_, [&] {
    watched_ = &heap;
    heap.watch(this);
  });
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = registrations_.try_emplace(begin);
  Registration& known = found->second;
  if (is_new) known = enroll(whole);
  if (known.region == nullptr) return false;
  *out = {.begin = begin,
          .size = known.size,
          .local_key = known.region->lkey,
          .remote_key = known.region->rkey,
          .generation = generation()};
  return true;
} catch (const std::exception&) { // no memory for the table
  return false;
}

/// Registers an allocation with the device.
VerbsRegions::Registration VerbsRegions::enroll(std::span<std::byte> memory) {
  Registration made{.size = memory.size()};
  made.region = device_.api->reg_mr(device_.domain, memory.data(), memory.size(),
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (made.region == nullptr) {
    log(LogLevel::kWarn, verbs::describe_registration(memory.size(), -errno, device_.name) +
                             "; messages from and to this memory are copied");
    return made;
  }
  // After ibv_fork_init() libibverbs takes registered memory away from children of fork(), on
  // kernels where a write after the fork could move it to other pages. The heap is shared with
  // children and never copied on write.
  static_cast<void>(::madvise(memory.data(), memory.size(), MADV_DOFORK));
  return made;
}

void VerbsRegions::leaving(std::span<const std::byte> memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = registrations_.find(reinterpret_cast<std::uintptr_t>(memory.data()));
  if (found == registrations_.end()) return;
  if (found->second.region != nullptr) device_.api->dereg_mr(found->second.region);
  registrations_.erase(found);
  generation_.fetch_add(1, std::memory_order_relaxed);
}

} // namespace whorl
