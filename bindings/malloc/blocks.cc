#include "bindings/malloc/blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "whorl/whorl.h"

namespace whorl_malloc {
namespace {

/// Rounds a size up in steps of an eighth of a power of two, so that a freed block fits the next
/// one: the library keeps freed memory for allocations of exactly its size.
std::size_t rounded(std::size_t bytes) noexcept {
  const std::size_t step = std::max(std::bit_floor(bytes) / 8, Blocks::kAlignment);
  return (bytes + step - 1) / step * step;
}

/// Replaces a block by a private copy at its address. Returns whether there was memory for it.
bool make_private(void* block, std::size_t bytes) noexcept {
  void* const copy =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, block, bytes);
  return ::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, block) != MAP_FAILED;
}

} // namespace

Blocks& Blocks::all() noexcept {
  alignas(Blocks) static std::byte memory[sizeof(Blocks)];
  static auto* const blocks = new (memory) Blocks; // never destroyed: memory is freed until the end
  return *blocks;
}

void* Blocks::take(std::size_t bytes) noexcept {
  if (bytes > PTRDIFF_MAX) return nullptr;
  const std::size_t size = rounded(bytes);
  void* memory = nullptr;
  if (whorlMemAlloc(&memory, size) != whorlSuccess) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(memory, Block{size, false});
  } catch (const std::bad_alloc&) {
    whorlMemFree(memory);
    return nullptr;
  }
  return memory;
}

std::size_t Blocks::size(const void* memory) noexcept {
  if (reinterpret_cast<std::uintptr_t>(memory) % kAlignment != 0) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  return found != blocks_.end() ? found->second.bytes : 0;
}

bool Blocks::give_back(void* memory) noexcept {
  if (reinterpret_cast<std::uintptr_t>(memory) % kAlignment != 0) return false;
  Block block{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(memory);
    if (found == blocks_.end()) return false;
    block = found->second;
    blocks_.erase(found);
  }
  if (block.copied) {
    ::munmap(memory, block.bytes);
  } else {
    whorlMemFree(memory);
  }
  return true;
}

void Blocks::before_fork() noexcept {
  mutex_.lock();
  int ends[2];
  if (!blocks_.empty() && ::pipe2(ends, O_CLOEXEC) == 0) copied_ = {ends[0], ends[1]};
}

void Blocks::after_fork_in_parent() noexcept {
  if (copied_.read >= 0) {
    const int error = errno; // of a fork() that failed
    ::close(copied_.write);
    char byte = 0;
    while (::read(copied_.read, &byte, 1) < 0 && errno == EINTR) {
    }
    ::close(copied_.read);
    copied_ = {};
    errno = error;
  }
  mutex_.unlock();
}

void Blocks::after_fork_in_child() noexcept {
  for (auto& [memory, block] : blocks_) {
    if (block.copied) continue; // private already
    // Without the pipe the parent may be writing to its blocks.
    if (copied_.read < 0 || !make_private(const_cast<void*>(memory), block.bytes)) {
      constexpr std::string_view kText =
          "libwhorl_malloc: fork() found no memory, or no descriptors, for the child's copies of "
          "large blocks; the child ends\n";
      static_cast<void>(!::write(STDERR_FILENO, kText.data(), kText.size()));
      ::_exit(127);
    }
    block.copied = true;
  }
  if (copied_.read >= 0) {
    ::close(copied_.read);
    ::close(copied_.write);
    copied_ = {};
  }
  mutex_.unlock();
}

} // namespace whorl_malloc
