#include "device/staged/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "gpu/driver.h"
#include "memory/heap.h"

namespace whorl {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
constexpr std::size_t kWordsBytes = std::size_t{64} << 10;
constexpr std::size_t kLine = 64;

/// Sizes that differ little are alike, so that what is given back fits.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= kLeastBytes) return kLeastBytes;
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

/// What is registered in a context. Never destroyed: streams may outlive main().
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
    return add(rounded(bytes)); // others need not wait for that
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

  Result<std::byte*> words(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (words_.size() < bytes) {
      const auto page = make(kWordsBytes);
      if (!page.ok()) return page.status();
      words_ = *page;
    }
    std::byte* const begin = words_.data();
    words_ = words_.subspan(std::min(words_.size(), round_up(bytes, kLine)));
    return begin;
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
  std::multimap<std::size_t, std::byte*> free_; ///< by size
  std::vector<std::size_t> sizes_;              ///< of all
  std::span<std::byte> words_;                  ///< that nobody has yet
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

Result<std::byte*> staging_words(CUcontext context, std::size_t bytes) {
  return StagingMemory::Pool::of(context).words(bytes);
}

} // namespace whorl
