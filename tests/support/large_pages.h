#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/system.h"

namespace whorl::test {

/// System with pages of 64 KiB, as some kernels of AArch64 and POWER have: mappings begin and end
/// at multiples of them.
class LargePages final : public System {
 public:
  static constexpr std::size_t kPageBytes = 64 << 10;

  std::size_t page_bytes() noexcept override { return kPageBytes; }

  int mmap(void* hint, std::size_t size, int protection, int flags, int fd, std::size_t offset,
           void** address) noexcept override {
    const bool fixed = (flags & MAP_FIXED) != 0;
    if (offset % kPageBytes != 0) return -EINVAL;
    if (fixed && reinterpret_cast<std::uintptr_t>(hint) % kPageBytes != 0) return -EINVAL;
    size = round_up(size, kPageBytes);
    if (fixed) return System::mmap(hint, size, protection, flags, fd, offset, address);
    void* room = nullptr; // a page larger than the mapping, and its rest is given back
    constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const int error = System::mmap(nullptr, size + kPageBytes, PROT_NONE, kReserve, -1, 0, &room);
    if (error < 0) return error;
    auto* const begin = static_cast<std::byte*>(room);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(room) % kPageBytes;
    if (before > 0) System::munmap(begin, before);
    System::munmap(begin + before + size, kPageBytes - before);
    return System::mmap(begin + before, size, protection, flags | MAP_FIXED, fd, offset, address);
  }

  int munmap(void* address, std::size_t size) noexcept override {
    return System::munmap(address, round_up(size, kPageBytes));
  }
};

} // namespace whorl::test
