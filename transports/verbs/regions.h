#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "memory/heap.h"

namespace whorl {

struct VerbsDevice;

/// Part of the heap (whorlMemAlloc(), whorlCommRegister()) that a device may read and write.
struct VerbsRegion {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;
  std::uint64_t generation = 0; ///< VerbsRegions::generation() at which it was found

  bool holds(std::span<const std::byte> memory) const noexcept {
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(memory.data()) - begin;
    return offset < size && memory.size() <= size - offset;
  }
};

/// Registrations of heap memory with one device, for all communicators of the process. An
/// allocation is registered when a part of it is first sent from or received to, which takes the
/// longer the more pages it has, and until it is freed. Any thread.
class VerbsRegions final : private HeapWatcher {
 public:
  explicit VerbsRegions(VerbsDevice& device) noexcept : device_(device) {}
  VerbsRegions(const VerbsRegions&) = delete;
  VerbsRegions& operator=(const VerbsRegions&) = delete;
  ~VerbsRegions() override;

  /// Finds the region that holds `memory`. Returns false if there is none: `memory` is not in the
  /// heap, or the device does not take it.
  bool find(std::span<const std::byte> memory, VerbsRegion* out) noexcept;
  /// Counts the changes after which a region that was found may be gone.
  std::uint64_t generation() const noexcept {
    // No order is needed: memory that leaves the heap is not in use.
    return generation_.load(std::memory_order_relaxed);
  }

 private:
  struct Registration {
    std::size_t size = 0;
    ibv_mr* region = nullptr; ///< null: the device has refused
  };
  void leaving(std::span<const std::byte> memory) noexcept override;
  Registration enroll(std::span<std::byte> memory);

  VerbsDevice& device_;
  std::atomic<std::uint64_t> generation_{1};
  std::once_flag watching_;
  Heap* watched_ = nullptr; ///< the heap that tells of memory which leaves it
  std::mutex mutex_;        ///< guard of the field below; taken after the heap's
  std::map<std::uintptr_t, Registration> registrations_; ///< registrations with their addresses
};

/// Region that an endpoint has used last, so that the next use of it takes no lock.
class LastRegion {
 public:
  /// Finds the region that holds `memory`, as VerbsRegions::find() does.
  bool find(VerbsRegions& regions, std::span<const std::byte> memory) noexcept {
    if (region_.generation == regions.generation() && region_.holds(memory)) return true;
    return regions.find(memory, &region_);
  }
  const VerbsRegion& get() const noexcept { return region_; }

 private:
  VerbsRegion region_;
};

} // namespace whorl
