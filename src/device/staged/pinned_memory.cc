#include "device/staged/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "gpu/driver.h"
#include "memory/heap.h"

namespace whorl {
namespace {

constexpr std::size_t kMinBytes = std::size_t{1} << 20;
constexpr std::size_t kWordsBytes = std::size_t{64} << 10;

/// Rounds a size up, so that memory that is returned to the pool fits requests of similar sizes.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= kMinBytes) return kMinBytes;
  return round_up(bytes, std::bit_floor(bytes) / 4);
}

Result<std::span<std::byte>> make(std::size_t bytes) {
  const auto made = heap_alloc(bytes);
  if (!made.ok()) return made.status();
  const gpu::CaptureModeGuard relaxed;
  const CUresult result = gpu::driver()->cuMemHostRegister(
      *made, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(heap_free(*made));
    return gpu::check(result, "cuMemHostRegister");
  }
  return std::span(static_cast<std::byte*>(*made), bytes);
}

} // namespace

/// Memory registered in a context. Never destroyed: streams may outlive main().
class StagingMemory::Pool {
 public:
  static Pool& of(CUcontext context) {
    static std::mutex mutex;
    static auto& all = *new std::map<std::uint64_t, Pool>;
    const std::lock_guard lock(mutex);
    return all[gpu::id_of(context)];
  }

  Result<std::span<std::byte>> take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.lower_bound(bytes);
      if (found != free_.end()) {
        const std::span memory(found->second, found->first);
        free_.erase(found);
        return memory;
      }
    }
    return add(rounded(bytes)); // without the lock, so that other threads need not wait
  }

  void give_back(std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    free_.emplace(memory.size(), memory.data());
  }

  Status reserve(std::size_t count, std::size_t bytes) {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        const auto large = std::count_if(sizes_.begin(), sizes_.end(),
                                         [&](std::size_t size) { return size >= rounded(bytes); });
        if (static_cast<std::size_t>(large) >= count) return {};
      }
      const auto more = add(rounded(bytes));
      if (!more.ok()) return more.status();
      give_back(*more);
    }
  }

  Result<std::byte*> take_words() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (!words_.empty()) {
          std::byte* const taken = words_.back();
          words_.pop_back();
          std::memset(taken, 0, StagingWords::kBytes);
          return taken;
        }
      }
      const auto more = make(kWordsBytes); // without the lock, as in take()
      if (!more.ok()) return more.status();
      const std::lock_guard lock(mutex_);
      for (std::size_t at = kWordsBytes; at > 0; at -= StagingWords::kBytes) {
        words_.push_back(more->data() + at - StagingWords::kBytes);
      }
    }
  }

  void give_back_words(std::byte* words) {
    const std::lock_guard lock(mutex_);
    words_.push_back(words);
  }

 private:
  Result<std::span<std::byte>> add(std::size_t bytes) {
    const auto made = make(bytes);
    if (!made.ok()) return made.status();
    const std::lock_guard lock(mutex_);
    sizes_.push_back(bytes);
    return *made;
  }

  std::mutex mutex_;
  std::multimap<std::size_t, std::byte*> free_; ///< free memory by size
  std::vector<std::size_t> sizes_;              ///< sizes of all registered memory, free or taken
  std::vector<std::byte*> words_;               ///< free memory of StagingWords
};

Result<std::unique_ptr<StagingMemory>> StagingMemory::take(CUcontext context, std::size_t bytes) {
  auto memory = std::make_unique<StagingMemory>();
  Pool& pool = Pool::of(context);
  const auto taken = pool.take(bytes);
  if (!taken.ok()) return taken.status();
  memory->memory_ = *taken;
  memory->pool_ = &pool;
  return memory;
}

Status StagingMemory::reserve(CUcontext context, std::size_t count, std::size_t bytes) {
  return Pool::of(context).reserve(count, bytes);
}

StagingMemory::~StagingMemory() {
  if (pool_ != nullptr) pool_->give_back(memory_);
}

Result<std::unique_ptr<StagingWords>> StagingWords::take(CUcontext context) {
  auto words = std::make_unique<StagingWords>();
  StagingMemory::Pool& pool = StagingMemory::Pool::of(context);
  const auto taken = pool.take_words();
  if (!taken.ok()) return taken.status();
  words->memory_ = *taken;
  words->pool_ = &pool;
  return words;
}

StagingWords::~StagingWords() {
  if (pool_ != nullptr) pool_->give_back_words(memory_);
}

} // namespace whorl
