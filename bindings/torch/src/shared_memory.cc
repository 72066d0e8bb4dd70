#include "bindings/torch/src/shared_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "bindings/torch/src/errors.h"
#include "whorl/whorl.h"

namespace whorl_torch {
namespace {

/// Size of the smallest tensor in shared memory: small messages are copied anyway.
constexpr std::size_t kMinBytes = 64 << 10;
/// Memory that is kept for later; as much as tensors occupy if that is more.
constexpr std::size_t kKeptBytes = 64 << 20;

/// Rounds a size up in steps of an eighth of a power of two, so that memory which a tensor leaves
/// fits the next.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, 4096);
  return (bytes + step - 1) / step * step;
}

/// Allocator of shared memory. Never destroyed, because tensors outlive static objects.
class SharedAllocator final : public c10::Allocator {
 public:
  static SharedAllocator& instance() {
    static auto* const it = new SharedAllocator;
    return *it;
  }

  void begin() {
    active_.fetch_add(1);
    static const bool installed = [this] {
      pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] {
                       SharedAllocator& it = instance();
                       // Ranks that are forked from a parent with nothing there start afresh.
                       if (!it.sizes_.empty() || !it.blocks_.empty()) it.inherited_.store(true);
                       it.mutex_.unlock();
                     });
      // Tensors that exist keep the deleters of the previous allocator, which stays.
      next_ = c10::GetCPUAllocator();
      c10::SetCPUAllocator(this, /*priority=*/1);
      return true;
    }();
    static_cast<void>(installed);
  }
  void end() { active_.fetch_sub(1); }

  c10::DataPtr allocate(std::size_t bytes) override {
    const bool ours = bytes >= kMinBytes && active_.load(std::memory_order_relaxed) > 0 &&
                      !inherited_.load(std::memory_order_relaxed);
    void* const memory = ours ? take(rounded(bytes)) : nullptr;
    if (memory == nullptr) return next_->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    return {memory, memory, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  SharedMemoryUse use() {
    if (inherited_.load()) return {0, 0};
    const std::lock_guard lock(mutex_);
    return {used_, kept_};
  }
  bool owns(const void* memory) {
    if (inherited_.load()) return false;
    const std::lock_guard lock(mutex_);
    return sizes_.contains(memory);
  }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
  };

  /// Takes memory that is kept, or allocates it; null if the heap has no room.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    // The block that was given back last may still be in a cache.
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                    [bytes](const Block& block) { return block.bytes == bytes; });
    void* memory = nullptr;
    if (found != blocks_.rend()) {
      memory = found->memory;
      blocks_.erase(std::next(found).base());
      kept_ -= bytes;
    } else if (whorlMemAlloc(&memory, bytes) != whorlSuccess) {
      shrink(0);
      if (whorlMemAlloc(&memory, bytes) != whorlSuccess) return nullptr;
    }
    sizes_.emplace(memory, bytes);
    used_ += bytes;
    return memory;
  }

  static void release(void* memory) { instance().give_back(memory); }

  void give_back(void* memory) {
    if (memory == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      const auto found = sizes_.find(memory);
      if (found != sizes_.end()) {
        if (inherited_.load(std::memory_order_relaxed)) return; // the heap is the parent's
        const std::size_t bytes = found->second;
        sizes_.erase(found);
        used_ -= bytes;
        kept_ += bytes;
        blocks_.push_back({memory, bytes});
        shrink(std::max(kKeptBytes, used_));
        c10::profiledCPUMemoryReporter().Delete(memory);
        return;
      }
    }
    next_->raw_deleter()(memory); // memory of a raw_allocate() that was passed on
  }

  /// Gives the oldest blocks back to the heap. With the lock held.
  void shrink(std::size_t limit) {
    auto end = blocks_.begin();
    for (; end != blocks_.end() && kept_ > limit; ++end) {
      kept_ -= end->bytes;
      whorlMemFree(end->memory);
    }
    blocks_.erase(blocks_.begin(), end);
  }

  std::atomic<int> active_{0};
  std::atomic<bool> inherited_{false}; ///< whether the heap is that of a parent process
  c10::Allocator* next_ = nullptr;

  std::mutex mutex_;                                   ///< guards the members below
  std::unordered_map<const void*, std::size_t> sizes_; ///< sizes of the blocks that tensors occupy
  std::vector<Block> blocks_;                          ///< blocks that are kept, the oldest first
  std::size_t used_ = 0, kept_ = 0;
};

} // namespace

void begin_shared_memory() { SharedAllocator::instance().begin(); }
void end_shared_memory() { SharedAllocator::instance().end(); }
SharedMemoryUse shared_memory_use() { return SharedAllocator::instance().use(); }

bool in_shared_memory(const at::Tensor& tensor) {
  return tensor.has_storage() && SharedAllocator::instance().owns(tensor.storage().data());
}

} // namespace whorl_torch
