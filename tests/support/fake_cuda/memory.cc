#include "tests/support/fake_cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "tests/support/fake_cuda/contexts.h"

namespace fake_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlock = std::size_t{2} << 20;
constexpr std::size_t kMaxSmall = kBlock / 2; ///< size of the largest allocation in a shared block
constexpr std::size_t kGrain = 512;           ///< alignment of small allocations

std::atomic<unsigned long long> allocations_made{0};

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// Maps a file at an address aligned to the size of a block, without access. Returns nullptr if
/// that fails.
std::byte* map_aligned(int fd, std::size_t bytes) {
  void* const space =
      mmap(nullptr, bytes + kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(space);
  const auto begin = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = round_up(begin, kBlock) - begin;
  if (before > 0) munmap(first, before);
  munmap(first + before + bytes, kBlock - before);
  void* const mapped = mmap(first + before, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

} // namespace

Memory& Memory::all() {
  static Memory& instance = *new Memory;
  return instance;
}

/// Returns a name for the file behind a block, so that a freed block is not found.
std::string Memory::name_of(unsigned long long id) {
  return "fake device memory " + std::to_string(id);
}

/// Maps the file of a block, of which nothing is used yet. Returns nullptr if that fails.
Memory::OwnBlock* Memory::make_block(int fd, std::size_t bytes, int device) {
  const std::size_t size = round_up(bytes, kPage);
  std::byte* const outside = map_aligned(fd, size);
  void* const inside = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (outside == nullptr || inside == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(outside);
  OwnBlock& made = blocks_[begin];
  made.block = {.begin = begin, .bytes = size, .device = device, .fd = fd};
  made.alias = static_cast<std::byte*>(inside);
  return &made;
}

/// Puts an allocation into a block.
CUresult Memory::place(OwnBlock& block, std::size_t offset, Range range, CUdeviceptr* address) {
  range.begin = block.block.begin + offset;
  range.alias = block.alias + offset;
  range.type = CU_MEMORYTYPE_DEVICE;
  range.device = block.block.device;
  range.block = block.block.begin;
  block.used[offset] = range.bytes;
  ranges_[range.begin] = range;
  *address = range.begin;
  return CUDA_SUCCESS;
}

/// Returns the offset of the first room for `bytes` in a block; the block's size if there is none.
std::size_t Memory::room_in(const OwnBlock& block, std::size_t bytes) {
  std::size_t offset = 0;
  for (const auto& [begin, size] : block.used) {
    if (begin - offset >= bytes) return offset;
    offset = round_up(begin + size, kGrain);
  }
  return offset + bytes <= block.block.bytes ? offset : block.block.bytes;
}

CUresult Memory::allocate_device(std::size_t bytes, bool pool, int device, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool small = bytes <= kMaxSmall && !pool;
  const std::lock_guard lock(mutex_);
  const Range range{.bytes = bytes, .id = ++allocations_made, .shareable = !pool, .pool = pool};
  for (auto& [begin, block] : blocks_) {
    if (!small || !block.shared || block.block.device != device) continue;
    const std::size_t offset = room_in(block, bytes);
    if (offset < block.block.bytes) return place(block, offset, range, address);
  }
  const unsigned long long id = ++allocations_made;
  const std::size_t size = small ? kBlock : round_up(bytes, kPage);
  const int fd = memfd_create(name_of(id).c_str(), MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  OwnBlock* const made = make_block(fd, size, device);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->block.id = id;
  made->shared = small;
  return place(*made, 0, range, address);
}

Memory::Block Memory::block_of(const Range& range) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(range.block);
  return found == blocks_.end() ? Block{} : found->second.block;
}

CUresult Memory::open_device(int process, const Block& block, CUdeviceptr* address) {
  // The real driver refuses to open a handle in its own process, too.
  if (process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(block.fd);
  char name[256] = {};
  if (readlink(path.c_str(), name, sizeof name - 1) < 0 ||
      std::string(name) != "/memfd:" + name_of(block.id) + " (deleted)") {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(mutex_);
  OwnBlock* const made = make_block(own, block.bytes, block.device);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return place(*made, 0, {.bytes = block.bytes, .id = ++allocations_made}, address);
}

void Memory::add_mapping(const Range& range) {
  const std::lock_guard lock(mutex_);
  ranges_[range.begin] = range;
}
void Memory::remove_mapping(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(begin);
}

/// Unmaps the memory of a range that is not known any more, unless it is the program's own: for
/// device memory the whole block, once it has no other allocation.
void Memory::unmap(const Range& range) {
  if (range.registered) return;
  const auto found = blocks_.find(range.block);
  if (found == blocks_.end()) {
    munmap(range.alias, round_up(range.bytes, kPage));
    return;
  }
  OwnBlock& own = found->second;
  own.used.erase(range.begin - own.block.begin);
  if (!own.used.empty()) return;
  munmap(reinterpret_cast<void*>(own.block.begin), own.block.bytes);
  munmap(own.alias, own.block.bytes);
  close(own.block.fd);
  blocks_.erase(found);
}

/// Forgets the range that begins at an address and unmaps it. Returns whether there was one.
bool Memory::free_range(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(begin);
  if (found == ranges_.end() || found->second.reservation > 0) return false;
  const Range range = found->second;
  ranges_.erase(found);
  unmap(range);
  return true;
}

CUresult Memory::free_device(CUdeviceptr address) {
  return free_range(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void Memory::forget(int device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [this, device](const auto& entry) {
    const Range& range = entry.second;
    if (range.device != device || range.reservation > 0) return false;
    unmap(range);
    return true;
  });
}

CUresult Memory::allocate_host(std::size_t bytes, bool managed, void** address) {
  void* const memory = mmap(nullptr, round_up(bytes, kPage), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  insert({.begin = reinterpret_cast<std::uintptr_t>(memory),
          .bytes = bytes,
          .alias = static_cast<std::byte*>(memory),
          .type = static_cast<unsigned>(managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST),
          .managed = managed});
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult Memory::free_host(void* address) {
  return free_range(reinterpret_cast<std::uintptr_t>(address)) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult Memory::add_host(void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (find(begin).bytes > 0) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  insert({.begin = begin,
          .bytes = bytes,
          .alias = static_cast<std::byte*>(address),
          .type = CU_MEMORYTYPE_HOST,
          .registered = true});
  return CUDA_SUCCESS;
}

CUresult Memory::remove_host(void* address) {
  return free_range(reinterpret_cast<std::uintptr_t>(address))
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

Memory::Range Memory::find(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return {};
  const Range& range = (--after)->second;
  return address - range.begin < range.bytes ? range : Range{};
}

std::byte* Memory::reach(std::uintptr_t address) {
  const Range range = find(address);
  if (range.bytes == 0) return reinterpret_cast<std::byte*>(address);
  return range.alias + (address - range.begin);
}

void Memory::insert(Range range) {
  range.device = current_context() == nullptr ? 0 : device_of(current_context());
  const std::lock_guard lock(mutex_);
  ranges_[range.begin] = range;
}

} // namespace fake_cuda
